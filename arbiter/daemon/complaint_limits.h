// SPDX-License-Identifier: Apache-2.0
// Bounds the lines about a user in the log: for each cause some at once and then one in ten seconds. What is
// left out is counted, and told with the next line, or with the last one that was left out when its time has
// come. Lines about root are not bounded.
//
// Pure. One thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arbiter/daemon/token_bucket.h"

namespace sharedgpu {

// The subject of a line.
enum class Cause : std::uint8_t {
  turned_away,
  dropped,
  denied,
  foreign,
  excessive,
  unplaced,
  overstay,
  note,
  unmanaged,
  host_claim,
  gpu,
  gang
};

class ComplaintLimits {
 public:
  static constexpr double kAtOnce = 10;
  static constexpr double kASecond = 0.1;

  // The line as it is to be logged now; none: it is left out.
  std::optional<std::string> add(uid_t user, Cause cause, const std::string& line, Nanoseconds now);
  // The lines that tell of those left out and may be logged now.
  std::vector<std::string> take_left_out(Nanoseconds now);
  // True if some were left out that nothing has told of.
  bool has_left_out() const { return !left_out_.empty(); }

 private:
  using Key = std::pair<uid_t, Cause>;
  struct LeftOut {
    std::string last;
    std::uint64_t count = 0;
  };

  TokenBuckets<Key> allowed_{kAtOnce, kASecond};
  std::map<Key, LeftOut> left_out_;  // since a line was logged
};

}  // namespace sharedgpu
