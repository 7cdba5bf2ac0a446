// SPDX-License-Identifier: Apache-2.0
#include "interposer/gate/gate.h"

#include "interposer/gate/captures.h"
#include "interposer/gate/clock.h"
#include "interposer/gate/closing.h"

namespace sharedgpu::gate {
namespace {

constexpr Nanoseconds kRecheck = std::chrono::milliseconds(
    50);  // waiting threads check the gate again after this time, since replacing a page wakes no thread

struct Entrance {
  std::atomic<std::uint32_t> waiting{0};
  std::atomic<std::int64_t> last_let_in{0};
};
constinit Entrance entrance;

// Lets the calling thread enter if the gate permits it, and returns true if so.
bool try_enter(Mark& mark) {
  if (!is_open() && !detail::excused()) return false;
  std::uint64_t before = mark.count.load(std::memory_order_relaxed);
  // close() and step() first store `released` and then read the pass counters. This function first stores the
  // thread's pass counter and then reads the phase, so at least one side sees the store of the other.
  mark.count.store(before + 1, std::memory_order_seq_cst);
  if (is_open() || !detail::released()) return true;
  mark.count.store(before, std::memory_order_release);
  return false;
}

}  // namespace

void detail::enter_slowly() {
  Mark& mark = own_mark();
  if (try_enter(mark)) return;
  // A pause that the process itself has begun ends soon, so the listener is not called during it.
  bool told = entrance.waiting.fetch_add(1, std::memory_order_seq_cst) != 0 && !paused();
  while (!try_enter(mark)) {
    if (!told && !paused()) {
      tell_of_wait();
      told = true;
    }
    wait_while_closed(kRecheck);
  }
  entrance.last_let_in.store(now().count(), std::memory_order_relaxed);
  entrance.waiting.fetch_sub(1, std::memory_order_seq_cst);
}

bool wanted() { return entrance.waiting.load(std::memory_order_seq_cst) != 0; }

Nanoseconds let_in() { return Nanoseconds(entrance.last_let_in.load(std::memory_order_relaxed)); }

void after_fork() {
  drop_other_marks();
  entrance.waiting.store(0, std::memory_order_relaxed);
  forget_captures();
  forget_lease();
  forget_pages();
  open_for_good();
}

}  // namespace sharedgpu::gate
