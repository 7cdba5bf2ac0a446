// SPDX-License-Identifier: Apache-2.0
#include "interposer/gate/marks.h"

#include "interposer/gate/thread_end.h"

namespace sharedgpu::gate {

constinit thread_local Thread detail::self;

namespace {

constinit std::atomic<Mark*> head{nullptr};

// Makes a pass counter available to other threads. If the counter's thread was cancelled inside the gate, the
// counter shows the thread as outside from now on.
void give_back(Mark& mark) {
  std::uint64_t count = mark.count.load(std::memory_order_relaxed);
  if (Mark::inside(count)) mark.count.store(count + 1, std::memory_order_release);
  mark.own_stream.store(false, std::memory_order_relaxed);  // the per-thread stream ends with its thread
  mark.taken.store(false, std::memory_order_release);
}

constinit ThreadEnd thread_end([](void* mark) {
  detail::self = {};
  give_back(*static_cast<Mark*>(mark));
});

Mark& take() {
  for (Mark* mark = head.load(std::memory_order_acquire); mark != nullptr; mark = mark->next) {
    bool taken = false;
    if (mark->taken.compare_exchange_strong(taken, true, std::memory_order_acquire)) return *mark;
  }
  auto* mark = new Mark;
  mark->taken.store(true, std::memory_order_relaxed);
  mark->next = head.load(std::memory_order_relaxed);
  while (!head.compare_exchange_weak(mark->next, mark, std::memory_order_seq_cst)) {
  }
  return *mark;
}

}  // namespace

Mark& own_mark() {
  Mark*& mark = detail::self.mark;
  if (mark == nullptr) {
    mark = &take();
    // If the program has used up all keys for thread-specific data, the pass counters of ended threads are
    // not reused, which is a small leak.
    thread_end.watch(mark);
  }
  return *mark;
}

Activity activity() {
  Activity sum;
  for (Mark* mark = head.load(std::memory_order_seq_cst); mark != nullptr; mark = mark->next) {
    std::uint64_t count = mark->count.load(std::memory_order_seq_cst);
    sum.passes += count;
    sum.inside |= Mark::inside(count);
    sum.own_streams |= mark->own_stream.load(std::memory_order_relaxed);
  }
  return sum;
}

void drop_other_marks() {
  for (Mark* mark = head.load(std::memory_order_relaxed); mark != nullptr; mark = mark->next)
    if (mark != detail::self.mark && mark->taken.load(std::memory_order_relaxed)) give_back(*mark);
}

}  // namespace sharedgpu::gate
