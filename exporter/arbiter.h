// SPDX-License-Identifier: Apache-2.0
// Asks an arbiter for its status in each call of Collect().
//
// Collections change only a cache of user names and the last problem, both guarded by a mutex. Any thread.
#pragma once

#include <prometheus/collectable.h>
#include <sys/types.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu::exporter {

class Arbiter final : public prometheus::Collectable {
 public:
  // `patience`: the longest wait for the connection, and for each reply.
  Arbiter(std::string socket, Nanoseconds patience) : socket_(std::move(socket)), patience_(patience) {}

  // Returns the current metrics. If the arbiter does not answer, or its answer is not understood,
  // sharedgpu_up is 0, and the reason is written to standard error. The reason is not written again while it
  // stays the same.
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  std::string user_name(uid_t uid) const;
  void note(const std::string& problem) const;

  const std::string socket_;
  const Nanoseconds patience_;
  mutable std::mutex mutex_;
  mutable std::map<uid_t, std::string> names_;  // guarded by mutex_
  mutable std::string problem_;                 // the last problem; guarded by mutex_
};

}  // namespace sharedgpu::exporter
