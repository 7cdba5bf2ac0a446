// SPDX-License-Identifier: Apache-2.0
// The turn thread: obeys Restore, Revoke, Step and Evict one after another, and watches for idleness between
// them.
//
// A thread of its own, since draining waits for kernels while the arbiter's answers must go on reaching
// threads that allocate (a thread that is capturing a stream may be one, and the drain waits for the
// capture).
#pragma once

#include <mutex>
#include <vector>

#include "interposer/memory/memory.h"
#include "interposer/session/contexts.h"
#include "interposer/session/idle.h"
#include "interposer/session/outbox.h"

namespace sharedgpu::session {

struct Turn {
  enum class Kind { restore, revoke, step, evict, go_plain };
  Kind kind = Kind::restore;
  Epoch epoch;
  std::uint64_t order = 0;  // of revoke and step
  Nanoseconds since{};      // when it came
};

class Turns {
 public:
  Turns(ContextDrain& drain, Outbox& outbox, gate::PageSlot slot)
      : drain_(drain), outbox_(outbox), slot_(slot) {}

  // Never returns.
  void run();

  void push(const Turn& turn);
  // From any thread: offers the turn to others before it is over.
  void give_back();
  // Others wait from now on: watches more closely.
  void look();
  void set_memory(Memory* memory) { memory_.store(memory, std::memory_order_release); }
  // What tells how long submissions take; asked while the gate is open, at each look whether the session is
  // idle.
  void measure_by(Nanoseconds (*submission)()) { measure_.store(submission, std::memory_order_release); }
  // What is called along with the memory's tend().
  void set_also_tend(void (*also)()) { also_tend_.store(also, std::memory_order_release); }
  void set_epoch(Epoch epoch) { epoch_.store(epoch.value, std::memory_order_relaxed); }

 private:
  bool pop(Turn& turn);
  void obey(const Turn& turn);
  bool restore();
  bool evict(Memory& memory);
  void release(const Turn& turn);
  void step(const Turn& turn);
  void say_released(const Turn& turn);
  void go_plain();
  void tend();
  void tend_often(Memory& memory);
  void watch();

  Memory* memory() const { return memory_.load(std::memory_order_acquire); }

  ContextDrain& drain_;
  Outbox& outbox_;
  const gate::PageSlot slot_;
  std::atomic<Memory*> memory_{nullptr};
  std::atomic<Nanoseconds (*)()> measure_{nullptr};
  std::atomic<void (*)()> also_tend_{nullptr};
  std::atomic<std::uint64_t> epoch_{0};
  Wakeup wakeup_;
  std::mutex mutex_;
  std::vector<Turn> queue_;

  // The turn thread's own.
  IdleWatch idle_watch_;
  Nanoseconds tended_{};
  Nanoseconds tended_often_{};
  Nanoseconds wanted_home_{};
  bool said_no_room_ = false;
  Bytes host_;                // host memory held, as last told
  Nanoseconds submission_{};  // how long one takes, as seen last; zero: not known
  Nanoseconds revoked_{};     // when the last Revoke came
  Turn unfinished_;           // a restore that the driver could not complete yet
  bool retry_ = false;
};

}  // namespace sharedgpu::session
