// SPDX-License-Identifier: Apache-2.0
#include "interposer/gate/gate.h"

#include <algorithm>
#include <cstdint>
#include <ctime>

#include "interposer/gate/control.h"
#include "interposer/gate/fence.h"
#include "interposer/gate/marks.h"
#include "interposer/gate/pages.h"

namespace sharedgpu::gate {
namespace detail {

constinit PageSlot slot{.page = {.gate = 1, .contended = 0}};
constinit thread_local Thread self;

}  // namespace detail

namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kRecheck = 50ms;  // the page may be replaced, and then nobody wakes us
constexpr Nanoseconds kFirstGrace = 500ms;
constexpr Nanoseconds kGraceStep = 10ms;
constexpr Nanoseconds kStepWait = 5ms;  // for a thread that is just coming
constexpr Nanoseconds kShortNap = 20us;
constexpr Nanoseconds kLongNap = 1ms;

// What is known of the lease. Work may pass a closed gate in `held` and `draining`, never in `released`.
enum class Phase : std::uint32_t { released, held, draining };
constinit std::atomic<Phase> phase{Phase::released};
constinit std::atomic<std::uint64_t> drain_number{0};
constinit std::atomic<std::int64_t> drain_began{0};

constinit std::atomic<std::uint64_t> released_at{0};  // how many passes there had been

constinit std::atomic<std::uint32_t> captures{0};
constinit std::atomic<std::uint32_t> waiting{0};
constinit std::atomic<void (*)()> on_wait{nullptr};
constinit std::atomic<bool (*)()> all_there{nullptr};

constinit std::atomic<std::int64_t> last_let_in{0};

Nanoseconds now() {
  timespec time = {};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return std::chrono::seconds(time.tv_sec) + Nanoseconds(time.tv_nsec);
}

void nap(Nanoseconds time) {
  timespec span = {.tv_sec = 0, .tv_nsec = static_cast<long>(time.count())};
  nanosleep(&span, nullptr);
}

// Whether this thread may pass although the gate is closed.
bool excused(Phase now_in) {
  if (now_in == Phase::released) return false;
  if (captures.load(std::memory_order_seq_cst) != 0) return true;
  if (now_in != Phase::draining) return false;
  if (auto* complete = all_there.load(std::memory_order_acquire); complete != nullptr && !complete())
    return false;
  Thread& self = detail::self;
  std::uint64_t drain = drain_number.load(std::memory_order_relaxed);
  if (self.grace_drain != drain) {
    self.grace_drain = drain;
    self.grace_used = 0;
  }
  std::uint32_t earned = grace(now() - Nanoseconds(drain_began.load(std::memory_order_relaxed)));
  if (self.grace_used >= earned) return false;
  self.grace_used = earned;
  return true;
}

// Goes inside if that is right; else leaves no trace.
bool try_enter(Mark& mark) {
  if (!is_open() && !excused(phase.load(std::memory_order_seq_cst))) return false;
  std::uint64_t before = mark.count.load(std::memory_order_relaxed);
  // close() first says `released` and then looks at the marks; here it is the other way round, so one of the
  // two sees the other.
  mark.count.store(before + 1, std::memory_order_seq_cst);
  if (is_open() || phase.load(std::memory_order_seq_cst) != Phase::released) return true;
  mark.count.store(before, std::memory_order_release);
  return false;
}

// Whether anything was let in since `released` was said. The page can open without a hold(): a session
// without memory has nothing to get ready.
bool passed_since() {
  Activity seen = sum_marks();
  return seen.inside || seen.passes != released_at.load(std::memory_order_relaxed) || capturing();
}

// Sleeps a little longer each time.
class Naps {
 public:
  void take() {
    nap(length_);
    length_ = std::min(2 * length_, kLongNap);
  }

 private:
  Nanoseconds length_ = kShortNap;
};

// Waits until nobody is inside and nothing is captured. False: the page opened meanwhile.
bool settle(std::uint64_t& passes) {
  for (Naps naps;; naps.take()) {
    if (is_open()) return false;
    process_fence();
    Activity seen = sum_marks();
    if (!seen.inside && !capturing()) {
      passes = seen.passes;
      return true;
    }
  }
}

// From here on, work may pass as after a drain that began at `began`.
void begin_drain(Nanoseconds began) {
  drain_began.store(began.count(), std::memory_order_relaxed);
  drain_number.fetch_add(1, std::memory_order_relaxed);
  phase.store(Phase::draining, std::memory_order_seq_cst);
}

bool finish_drain(Drain& drain) {
  for (Naps naps;;) {
    std::uint64_t before = 0;
    if (!settle(before)) break;
    if (!drain.drain()) {
      naps.take();
      continue;
    }
    phase.store(Phase::released, std::memory_order_seq_cst);
    process_fence();
    Activity after = sum_marks();
    if (!after.inside && after.passes == before && !capturing() && !is_open()) {
      released_at.store(before, std::memory_order_relaxed);
      return true;
    }
    // Somebody was let through while the GPU was draining; all over again.
    phase.store(Phase::draining, std::memory_order_seq_cst);
  }
  hold();
  return false;
}

}  // namespace

void detail::enter_slowly() {
  Mark& mark = own_mark();
  if (try_enter(mark)) return;
  if (waiting.fetch_add(1, std::memory_order_seq_cst) == 0)
    if (auto* tell = on_wait.load(std::memory_order_acquire)) tell();
  while (!try_enter(mark)) wait_while_closed(kRecheck);
  last_let_in.store(now().count(), std::memory_order_relaxed);
  waiting.fetch_sub(1, std::memory_order_seq_cst);
}

void arm(void (*tell)(), bool (*complete)()) {
  all_there.store(complete, std::memory_order_release);
  released_at.store(sum_marks().passes, std::memory_order_relaxed);
  on_wait.store(tell, std::memory_order_release);
}

void prepare_to_close() { prepare_fence(); }

void hold() { phase.store(Phase::held, std::memory_order_seq_cst); }
bool held() {
  return phase.load(std::memory_order_seq_cst) != Phase::released || is_open() || passed_since();
}

bool close(Drain& drain) {
  is_open();
  if (!held()) {
    process_fence();
    if (!passed_since()) return true;  // nothing was let in since the last time, and nothing may be now
  }
  begin_drain(now());
  return finish_drain(drain);
}

bool step(Drain& drain) {
  const std::uint64_t before = released_at.load(std::memory_order_relaxed);
  const Nanoseconds end = now() + kStepWait;
  begin_drain(now() - kFirstGrace);
  for (Naps naps; sum_marks().passes == before && !is_open() && now() < end; naps.take()) wake_waiting();
  return finish_drain(drain);
}

void capture_began() { captures.fetch_add(1, std::memory_order_seq_cst); }
void capture_ended() { captures.fetch_sub(1, std::memory_order_seq_cst); }
bool capturing() { return captures.load(std::memory_order_seq_cst) != 0; }

Nanoseconds let_in() { return Nanoseconds(last_let_in.load(std::memory_order_relaxed)); }

bool wanted() { return waiting.load(std::memory_order_seq_cst) != 0; }

Activity activity() { return sum_marks(); }

void after_fork() {
  drop_other_marks();
  waiting.store(0, std::memory_order_relaxed);
  captures.store(0, std::memory_order_relaxed);
  on_wait.store(nullptr, std::memory_order_relaxed);
  all_there.store(nullptr, std::memory_order_relaxed);
  forget_pages();
  open_for_good();
}

std::uint32_t grace(Nanoseconds elapsed) {
  if (elapsed < kFirstGrace) return 0;
  // The n-th pass after the first comes n^2 steps later: quick enough for a program that needs a few dozen of
  // its own submissions to end its work, ever slower than kernels that a program merely queues.
  const auto steps = static_cast<std::uint64_t>((elapsed - kFirstGrace) / kGraceStep);
  std::uint32_t passes = 1;
  while (std::uint64_t{passes} * passes <= steps) ++passes;
  return passes;
}

}  // namespace sharedgpu::gate
