// SPDX-License-Identifier: Apache-2.0
// A request of a thread of the program to exchange handles, which the turn thread carries out. The thread may
// cancel the request until handles begin to move. Thread-safe.
#pragma once

#include <cuda.h>

#include <atomic>
#include <utility>
#include <vector>

#include "interposer/gate/wakeup.h"

namespace sharedgpu::session {

struct ExchangeResult {
  bool complete = false;  // true: all handles that were to come in are in the window
  Nanoseconds took{};     // without the drain
};

class ExchangeRequest {
 public:
  ExchangeRequest(std::vector<CUdeviceptr> leaving, std::vector<CUdeviceptr> entering)
      : out(std::move(leaving)), in(std::move(entering)) {}

  const std::vector<CUdeviceptr> out;
  const std::vector<CUdeviceptr> in;
  gate::Wakeup changed;  // raised when done() becomes true

  // For the thread that made the request. Returns false if handles are moving, or have moved.
  bool cancel() {
    return advance(State::waiting, State::cancelled) || advance(State::draining, State::cancelled);
  }
  bool done() const { return state_.load(std::memory_order_acquire) == State::done; }
  ExchangeResult result() const { return result_; }  // once done() is true

  // For the turn thread. begin() is called before the drain, move() before the first handle moves; both
  // return false if the request has been cancelled.
  bool begin() { return advance(State::waiting, State::draining); }
  bool move() { return advance(State::draining, State::moving); }
  void end(ExchangeResult result) {
    result_ = result;
    state_.store(State::done, std::memory_order_release);
    changed.raise();
  }

 private:
  enum class State { waiting, draining, moving, done, cancelled };
  bool advance(State from, State to) { return state_.compare_exchange_strong(from, to); }

  std::atomic<State> state_{State::waiting};
  ExchangeResult result_;
};

}  // namespace sharedgpu::session
