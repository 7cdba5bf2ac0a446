// SPDX-License-Identifier: Apache-2.0
// The turn thread: obeys Restore, Revoke, Step and Evict one after another, and watches for idleness between
// them.
//
// A thread of its own, since draining waits for kernels while the arbiter's answers must go on reaching
// threads that allocate (a thread that is capturing a stream may be one, and the drain waits for the
// capture).
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "interposer/memory/memory.h"
#include "interposer/session/contexts.h"
#include "interposer/session/idle.h"
#include "interposer/session/maintenance.h"
#include "interposer/session/outbox.h"

namespace sharedgpu::session {

// An order of the arbiter's.
struct TurnOrder {
  enum class Kind { restore, revoke, step, evict, go_plain };
  Kind kind = Kind::restore;
  Epoch epoch;
  std::uint64_t number = 0;  // of revoke and step
  Nanoseconds since{};       // when it came
};

// All that it uses of the process.
struct TurnParts {
  ContextDrain& drain;
  Contexts& contexts;
  std::vector<Maintenance*> maintenance;
  SubmissionClock* submissions = nullptr;  // null: another session's thread asks it
};

class TurnWorker {
 public:
  TurnWorker(TurnParts parts, Outbox& outbox, gate::PageSlot slot)
      : parts_(std::move(parts)), outbox_(outbox), slot_(slot) {}

  // Never returns.
  void run();

  void push(const TurnOrder& order);
  // From any thread: offers the turn to others before it is over.
  void give_back();
  // Others wait from now on: watches more closely.
  void look();
  // Once, when the GPU is known; null: it is plain CUDA's.
  void set_memory(Memory* memory) { memory_.store(memory, std::memory_order_release); }
  // From any thread, at once: how much of the memory may be resident; the same, but no more than may be now.
  void allow(Bytes resident);
  void allow_at_most(Bytes resident);
  // From any thread: what Prepare says.
  void prepare_host(Bytes size, unsigned sharers);
  void set_epoch(Epoch epoch) { epoch_.store(epoch.value, std::memory_order_relaxed); }

 private:
  bool pop(TurnOrder& order);
  void obey(const TurnOrder& order);
  bool restore();
  bool evict(TurnMemory& memory);
  void release(const TurnOrder& order);
  void step(const TurnOrder& order);
  void say_released(const TurnOrder& order);
  void go_plain();
  void tend();
  void tend_often(TurnMemory& memory);
  void watch();

  Memory* memory() const { return memory_.load(std::memory_order_acquire); }

  const TurnParts parts_;
  Outbox& outbox_;
  const gate::PageSlot slot_;
  std::atomic<Memory*> memory_{nullptr};
  std::atomic<std::uint64_t> epoch_{0};
  Wakeup wakeup_;
  std::mutex mutex_;
  std::vector<TurnOrder> queue_;

  // The turn thread's own.
  IdleWatch idle_watch_;
  Nanoseconds tended_{};
  Nanoseconds tended_often_{};
  Nanoseconds wanted_home_{};
  bool said_no_room_ = false;
  Bytes host_;                // host memory held, as last told
  Nanoseconds submission_{};  // how long one takes, as seen last; zero: not known
  Nanoseconds revoked_{};     // when the last Revoke came
  TurnOrder unfinished_;      // a restore that the driver could not complete yet
  bool retry_ = false;
};

}  // namespace sharedgpu::session
