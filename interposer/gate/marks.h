// SPDX-License-Identifier: Apache-2.0
// Pass counters, one for each thread, and their registry: a list that only grows, read and extended without
// locks.
#pragma once

#include <atomic>
#include <cstdint>

namespace sharedgpu::gate {

// The pass counter of a thread that has reached the gate at least once. The count is odd while the thread is
// inside the gate. The turn thread uses the sum of all pass counters as a count of submissions
// (session/idle.h). Pass counters are never freed: when a thread ends, its counter can be taken by another
// thread that reaches the gate for the first time.
struct alignas(64) Mark {
  std::atomic<std::uint64_t> count{0};
  std::atomic<bool> taken{false};
  // True if the thread has given work to its per-thread default stream, which no other thread can query for
  // idleness.
  std::atomic<bool> own_stream{false};
  Mark* next = nullptr;

  static constexpr bool inside(std::uint64_t count) { return (count & 1u) != 0; }
};

// The gate's state of one thread.
struct Thread {
  Mark* mark = nullptr;
  std::uint32_t depth = 0;       // how many nested passes the thread holds
  std::uint32_t grace_used = 0;  // how many of the passes that grace() permits the thread has used or missed,
                                 // during the drain with the number `grace_drain`
  std::uint64_t grace_drain = 0;
};

namespace detail {
extern constinit thread_local Thread self;
}  // namespace detail

// The calling thread's pass counter, taken from the registry at its first use and returned when the thread
// ends.
Mark& own_mark();

// The sum of all pass counters, whether a thread is inside, and whether a thread that still exists has given
// work to its per-thread default stream.
struct Activity {
  std::uint64_t passes = 0;
  bool inside = false;
  bool own_streams = false;
};
// Computes the Activity from the pass counters of all threads.
Activity activity();

// Makes the pass counters of threads that exist only in the parent available to new threads. Call this in the
// child of a fork.
void drop_other_marks();

}  // namespace sharedgpu::gate
