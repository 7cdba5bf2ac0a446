// SPDX-License-Identifier: Apache-2.0
// A counter that threads wait on until another thread raises it. Needs no destructor and no lock.
#pragma once

#include <atomic>
#include <cstdint>

#include "interposer/gate/clock.h"

namespace sharedgpu::gate {

class Wakeup {
 public:
  // The count to pass to wait(). Call this before you read the state that the waking thread changes.
  std::uint32_t seen() const { return count_.load(std::memory_order_acquire); }
  // Returns when the counter has been raised since `seen`, or after `timeout`. May return earlier.
  void wait(std::uint32_t seen, Nanoseconds timeout);
  void raise();
  // Returns when `done` returns true. A thread that makes `done` return true must raise the counter
  // afterwards.
  template <class Done>
  void wait_until(Done done) {
    for (;;) {
      const std::uint32_t before = seen();
      if (done()) return;
      wait(before, std::chrono::milliseconds(100));
    }
  }

 private:
  std::atomic<std::uint32_t> count_{0};
};

}  // namespace sharedgpu::gate
