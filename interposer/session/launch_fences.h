// SPDX-License-Identifier: Apache-2.0
// Finds out which launches have ended, by a fence behind each of them. Thread-safe.
#pragma once

#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "interposer/memory/stream_pool.h"
#include "interposer/oversize/launches_under_way.h"

namespace sharedgpu::session {

class LaunchFences {
 public:
  using Number = LaunchesUnderWay::Number;

  // `fence` comes after the launch on the stream. A launch is added after those that were made before it on
  // the same stream.
  void add(Number launch, StreamId stream, FencePtr fence) {
    const std::lock_guard lock(mutex_);
    fences_.push_back({launch, stream, std::move(fence)});
  }
  // Returns the launches that have ended since the last call. The launches of one stream end in their order,
  // so only the first one that has not ended is queried.
  std::vector<Number> take_ended() {
    const std::lock_guard lock(mutex_);
    std::vector<Number> ended;
    std::set<StreamId> busy;
    std::erase_if(fences_, [&](const Entry& entry) {
      if (busy.contains(entry.stream)) return false;
      const bool passed = entry.fence->passed();
      if (passed)
        ended.push_back(entry.launch);
      else
        busy.insert(entry.stream);
      return passed;
    });
    return ended;
  }

 private:
  struct Entry {
    Number launch;
    StreamId stream;
    FencePtr fence;
  };
  std::mutex mutex_;  // guards the member below
  std::vector<Entry> fences_;
};

}  // namespace sharedgpu::session
