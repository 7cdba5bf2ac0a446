// SPDX-License-Identifier: Apache-2.0
// Limits the log lines that each user can cause: for each cause, ten lines in a burst, and then one line in
// ten seconds. Lines over the limit are left out and counted. The next line reports the number of omitted
// lines. If no line follows, the last omitted line and the number are logged as soon as the limit allows.
// Lines attributed to root are not limited.
//
// Pure. Not thread-safe.
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

// The reason for a log line.
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
  device_claim,
  gpu,
  gang,
  group
};

class ComplaintLimits {
 public:
  static constexpr double kAtOnce = 10;
  static constexpr double kASecond = 0.1;

  // Returns the line to log now; nullopt if the line is left out.
  std::optional<std::string> add(uid_t user, Cause cause, const std::string& line, Nanoseconds now);
  // Returns the reports about omitted lines that may be logged now, and forgets these reports.
  std::vector<std::string> take_left_out(Nanoseconds now);
  // Returns true if lines were left out and not reported yet.
  bool has_left_out() const { return !left_out_.empty(); }

 private:
  using Key = std::pair<uid_t, Cause>;
  struct LeftOut {
    std::string last;
    std::uint64_t count = 0;
  };

  TokenBuckets<Key> allowed_{kAtOnce, kASecond};
  std::map<Key, LeftOut> left_out_;  // lines left out since the last line that was logged
};

}  // namespace sharedgpu
