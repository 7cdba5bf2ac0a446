// SPDX-License-Identifier: Apache-2.0
// Finds out which launches have ended, by an event behind each of them. Thread-safe.
#pragma once

#include <cuda.h>

#include <deque>
#include <mutex>
#include <vector>

#include "interposer/oversize/launches_under_way.h"

namespace sharedgpu::session {

class LaunchFences {
 public:
  using Number = LaunchesUnderWay::Number;

  // Records an event behind the launch, which is the last work of the stream. Returns false if the driver
  // refuses.
  bool add(CUstream stream, Number launch);
  // Returns the launches that have ended, or whose end cannot be found out any more.
  std::vector<Number> take_ended();
  // Returns all launches. Call it before a context is destroyed, since its events go with it.
  std::vector<Number> take_all();

 private:
  struct Fence {
    CUevent event = nullptr;
    CUstream stream = nullptr;
    Number launch = 0;
  };
  std::mutex mutex_;  // guards the member below
  std::deque<Fence> fences_;
};

}  // namespace sharedgpu::session
