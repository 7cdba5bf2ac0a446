// SPDX-License-Identifier: Apache-2.0
#include "interposer/gate/closing.h"

#include <algorithm>

#include "interposer/gate/captures.h"
#include "interposer/gate/clock.h"
#include "interposer/gate/fence.h"
#include "interposer/gate/marks.h"

namespace sharedgpu::gate {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kFirstGrace = 500ms;
constexpr Nanoseconds kGraceStep = 10ms;
constexpr Nanoseconds kStepWait = 5ms;  // how long step() waits, at most, for a thread to pass the gate
constexpr Nanoseconds kShortNap = 20us;
constexpr Nanoseconds kLongNap = 1ms;

// The state of the lease. Work may pass a closed gate in `held` and `draining`, never in `released`.
enum class Phase : std::uint32_t { released, held, draining };
struct Lease {
  std::atomic<Phase> phase{Phase::released};
  std::atomic<std::uint64_t> drain_number{0};
  std::atomic<std::int64_t> drain_began{0};
  // The value of activity().passes when the phase became `released`, or at arm().
  std::atomic<std::uint64_t> released_at{0};
  std::atomic<GateListener*> listener{nullptr};
};
constinit Lease lease;

Phase phase() { return lease.phase.load(std::memory_order_seq_cst); }
void set_phase(Phase now_in) { lease.phase.store(now_in, std::memory_order_seq_cst); }

// Returns true if a thread has passed the gate since the phase became `released`, or a stream is being
// captured. The page may have opened without a call of hold(), since a session without memory has nothing to
// restore.
bool passed_since() {
  Activity seen = activity();
  return seen.inside || seen.passes != lease.released_at.load(std::memory_order_relaxed) || capturing();
}

// Each sleep is longer than the one before, up to a limit.
class Naps {
 public:
  void take() {
    nap(length_);
    length_ = std::min(2 * length_, kLongNap);
  }

 private:
  Nanoseconds length_ = kShortNap;
};

// Waits until no thread is inside and no stream is being captured. Returns false if the arbiter has opened
// the gate meanwhile.
bool settle(std::uint64_t& passes) {
  for (Naps naps;; naps.take()) {
    if (is_open()) return false;
    process_fence();
    Activity seen = activity();
    if (!seen.inside && !capturing()) {
      passes = seen.passes;
      return true;
    }
  }
}

// Begins a drain. Threads may pass the closed gate as if the drain had begun at `began`.
void begin_drain(Nanoseconds began) {
  lease.drain_began.store(began.count(), std::memory_order_relaxed);
  lease.drain_number.fetch_add(1, std::memory_order_relaxed);
  set_phase(Phase::draining);
}

bool finish_drain(Drain& drain) {
  for (Naps naps;;) {
    std::uint64_t before = 0;
    if (!settle(before)) break;
    if (!drain.drain()) {
      naps.take();
      continue;
    }
    set_phase(Phase::released);
    process_fence();
    Activity after = activity();
    if (!after.inside && after.passes == before && !capturing() && !is_open()) {
      lease.released_at.store(before, std::memory_order_relaxed);
      return true;
    }
    // A thread has passed during the drain, a capture has begun, or the gate is open. So the conditions are
    // checked again.
    set_phase(Phase::draining);
  }
  hold();
  return false;
}

}  // namespace

bool detail::excused() {
  const Phase now_in = phase();
  if (now_in == Phase::released) return false;
  if (capturing()) return true;
  if (now_in != Phase::draining) return false;
  GateListener* listener = lease.listener.load(std::memory_order_acquire);
  if (listener != nullptr && !listener->all_resident()) return false;
  const std::uint64_t drain = lease.drain_number.load(std::memory_order_relaxed);
  if (self.grace_drain != drain) {
    self.grace_drain = drain;
    self.grace_used = 0;
  }
  std::uint32_t earned = grace(now() - Nanoseconds(lease.drain_began.load(std::memory_order_relaxed)));
  if (self.grace_used >= earned) return false;
  self.grace_used = earned;
  return true;
}

bool detail::released() { return phase() == Phase::released; }

void detail::tell_of_wait() {
  if (auto* listener = lease.listener.load(std::memory_order_acquire)) listener->on_wait();
}

void arm(GateListener& listener) {
  lease.released_at.store(activity().passes, std::memory_order_relaxed);
  lease.listener.store(&listener, std::memory_order_release);
}

void forget_lease() { lease.listener.store(nullptr, std::memory_order_relaxed); }

void prepare_to_close() { prepare_fence(); }

void hold() { set_phase(Phase::held); }
bool held() { return phase() != Phase::released || is_open() || passed_since(); }

bool close(Drain& drain) {
  is_open();
  if (!held()) {
    process_fence();
    if (!passed_since())
      return true;  // no thread was let in since the last drain, and none may be let in now
  }
  begin_drain(now());
  return finish_drain(drain);
}

bool step(Drain& drain) {
  const std::uint64_t before = lease.released_at.load(std::memory_order_relaxed);
  const Nanoseconds end = now() + kStepWait;
  begin_drain(now() - kFirstGrace);
  for (Naps naps; activity().passes == before && !is_open() && now() < end; naps.take()) wake_waiting();
  return finish_drain(drain);
}

void open_for_good(PageSlot slot) {
  leave_open(slot);
  if (is_open()) hold();
}

std::uint32_t grace(Nanoseconds elapsed) {
  if (elapsed < kFirstGrace) return 0;
  // The n-th pass after the first is permitted n^2 times kGraceStep after the first was permitted. These
  // passes are frequent enough for a program that needs a few dozen further submissions to finish its work. A
  // program that only queues kernels submits ever more slowly.
  const auto steps = static_cast<std::uint64_t>((elapsed - kFirstGrace) / kGraceStep);
  std::uint32_t passes = 1;
  while (std::uint64_t{passes} * passes <= steps) ++passes;
  return passes;
}

}  // namespace sharedgpu::gate
