// SPDX-License-Identifier: Apache-2.0
// The turn thread obeys the orders Restore, Revoke, Step and Evict one after another. Between orders, it
// checks regularly whether the session is idle.
//
// The turn thread is separate from the service thread: while the turn thread waits for a drain, the service
// thread must still pass the arbiter's answers to threads that allocate. Otherwise a thread could wait for an
// answer in the middle of a capture that the drain waits for.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "interposer/memory/maintenance.h"
#include "interposer/memory/memory.h"
#include "interposer/session/exchange_request.h"
#include "interposer/session/exchange_totals.h"
#include "interposer/session/idle.h"
#include "interposer/session/outbox.h"
#include "interposer/session/submission_clock.h"
#include "interposer/tracking/contexts.h"

namespace sharedgpu::session {

// An order from the arbiter, or an exchange that a thread of the program has requested.
struct TurnOrder {
  enum class Kind { restore, revoke, step, evict, go_plain, exchange };
  Kind kind = Kind::restore;
  Epoch epoch;
  std::uint64_t number = 0;  // number of the order, for revoke and step
  Nanoseconds since{};       // time of arrival
  std::shared_ptr<ExchangeRequest> exchange = {};
};

// The phase of the session's lease. Between two orders, the turn thread acts according to the phase.
struct Closed {};   // work waits at the gate
struct Restoring {  // the driver is still freeing another process's memory
  TurnOrder order;  // the order to repeat until it succeeds
};
struct Holding {  // work runs, or will run as soon as the gate opens
  IdleWatch idle;
};
struct Plain {};  // unmanaged: the gate stays open
using LeasePhase = std::variant<Closed, Restoring, Holding, Plain>;

// The parts of the process that the turn thread uses.
struct TurnParts {
  tracking::ContextDrain& drain;
  tracking::Contexts& contexts;
  std::vector<Maintenance*> maintenance;
  SubmissionClock* submissions = nullptr;  // null if another session's turn thread uses the clock
};

class TurnWorker {
 public:
  TurnWorker(TurnParts parts, Outbox& outbox, ExchangeTotals& totals, gate::PageSlot slot)
      : parts_(std::move(parts)), outbox_(outbox), totals_(totals), slot_(slot) {}

  // Never returns.
  void run();

  void push(const TurnOrder& order);
  // Yields the turn to other tenants before the turn is over. Thread-safe.
  void give_back();
  // Called when other tenants begin to wait: wakes the turn thread, which checks whether the session is idle.
  void look();
  // Exchanges handles of the session's memory between the window and host memory, at a moment without work of
  // this process on the GPU. Waits until this is done. Gives up if the handles have not begun to move within
  // half a second, usually because the process's work has not ended. The result is `complete` if all handles
  // of `in` are in the window. Call it outside the gate. Thread-safe.
  ExchangeResult exchange(std::vector<CUdeviceptr> out, std::vector<CUdeviceptr> in);
  // Does the same for TurnMemory::merge(address), but waits longer for the end of the work, since the program
  // cannot go on without the merge.
  ExchangeResult merge(CUdeviceptr address);
  // Called once, when the GPU is known.
  void set_memory(Memory* memory) { memory_.store(memory, std::memory_order_release); }
  // Both functions set the resident limit immediately. allow_at_most() can only lower the limit. Thread-safe.
  void allow(Bytes resident);
  void allow_at_most(Bytes resident);
  // Passes the values of a Prepare message to the memory. Thread-safe.
  void prepare_host(Bytes size, unsigned sharers);
  // Sets the number of the turn that the arbiter has last announced. Thread-safe.
  void set_epoch(Epoch epoch) { epoch_.store(epoch.value, std::memory_order_relaxed); }
  Epoch epoch() const { return {epoch_.load(std::memory_order_relaxed)}; }

 private:
  // These functions return the next phase.
  LeasePhase obey(const TurnOrder& order);
  LeasePhase restore(const TurnOrder& order);
  LeasePhase after_drain(bool drained, const TurnOrder& order);
  LeasePhase holding() const;
  LeasePhase exchange(ExchangeRequest& request);
  static Exchanged carry_out(Memory& memory, const ExchangeRequest& request);
  ExchangeResult request(const std::shared_ptr<ExchangeRequest>& request, Nanoseconds patience);
  bool restore_memory();
  bool evict(TurnMemory& memory);
  void tend();
  void tend_often(TurnMemory& memory);
  void watch();

  Memory* memory() const { return memory_.load(std::memory_order_acquire); }

  const TurnParts parts_;
  Outbox& outbox_;
  ExchangeTotals& totals_;
  const gate::PageSlot slot_;
  std::atomic<Memory*> memory_{nullptr};
  std::atomic<std::uint64_t> epoch_{0};
  gate::Wakeup wakeup_;
  std::mutex mutex_;
  std::vector<TurnOrder> queue_;

  // Used by the turn thread only.
  LeasePhase phase_;
  std::uint32_t paused_ = 0;  // the pause of the gate that lasts until all memory is restored; zero: none
  Nanoseconds tended_{};
  Nanoseconds tended_often_{};
  Nanoseconds wanted_home_{};
  bool said_no_room_ = false;
  Bytes host_;                // the host memory held for swap, as tend() last saw it
  Exchanges reported_;        // the totals of exchanges, as tend() last saw them
  Nanoseconds submission_{};  // the last result of SubmissionClock::longest(); zero if unknown
  Nanoseconds revoked_{};     // time at which the last Revoke arrived
};

}  // namespace sharedgpu::session
