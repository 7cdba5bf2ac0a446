// SPDX-License-Identifier: Apache-2.0
// A request of a thread of the program to exchange handles, or to make one handle of several. The turn thread
// carries out the request. The requesting thread may cancel the request until handles begin to move.
// Thread-safe.
#pragma once

#include <cuda.h>

#include <atomic>
#include <utility>
#include <vector>

#include "interposer/gate/pages.h"
#include "interposer/gate/wakeup.h"
#include "protocol/units.h"

namespace sharedgpu::session {

// `closed`: nothing has moved, since the process's turn has ended or memory is not on the GPU; the thread may
// try again. `partial`: not all handles are where the request wants them, or the request was cancelled.
enum class Exchanged : std::uint8_t { closed, partial, complete };
struct ExchangeResult {
  Exchanged outcome = Exchanged::partial;
  Nanoseconds took{};  // without the drain
  Bytes entered{};     // the bytes that came into the window
};

class ExchangeRequest {
 public:
  ExchangeRequest(std::vector<CUdeviceptr> leaving, std::vector<CUdeviceptr> entering)
      : out(std::move(leaving)), in(std::move(entering)) {}
  explicit ExchangeRequest(CUdeviceptr merged) : merges(merged) {}

  const std::vector<CUdeviceptr> out;
  const std::vector<CUdeviceptr> in;
  const CUdeviceptr merges = 0;  // argument of TurnMemory::merge(); zero: handles are exchanged
  gate::Wakeup changed;          // raised when done() becomes true

  // For the thread that made the request. Returns false if handles are moving, or the request is done. If the
  // turn thread is draining for this request, cancel() ends the pause of the gate, and with it the drain.
  bool cancel() {
    if (advance(State::waiting, State::cancelled)) return true;
    if (!advance(State::draining, State::cancelled)) return false;
    gate::resume(pause_);
    return true;
  }
  bool done() const { return state_.load(std::memory_order_acquire) == State::done; }
  ExchangeResult result() const { return result_; }  // call it only if done()

  // For the turn thread. begin() is called before the drain, with the number of the gate's pause. move() is
  // called before the first handle moves. Both return false if the request has been cancelled. end() is
  // called last, in any case.
  bool begin(std::uint32_t pause) {
    pause_ = pause;
    return advance(State::waiting, State::draining);
  }
  bool move() { return advance(State::draining, State::moving); }
  void end(ExchangeResult result) {
    result_ = result;
    state_.store(State::done, std::memory_order_release);
    changed.raise();
  }

 private:
  enum class State : std::uint8_t { waiting, draining, moving, done, cancelled };
  bool advance(State from, State to) { return state_.compare_exchange_strong(from, to); }

  std::atomic<State> state_{State::waiting};
  std::uint32_t pause_ = 0;  // written before `draining`
  ExchangeResult result_;    // written before `done`
};

}  // namespace sharedgpu::session
