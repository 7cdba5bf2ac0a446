// SPDX-License-Identifier: Apache-2.0
// The counts of submissions, one for each thread, and their registry: a list that only grows, read and
// extended without locks.
#pragma once

#include <atomic>
#include <cstdint>

namespace sharedgpu::gate {

// One per thread that ever submitted; odd while inside. Counts submissions for the idle watch. Marks are
// never freed: a thread that ends leaves its mark to the next one that starts.
struct alignas(64) Mark {
  std::atomic<std::uint64_t> count{0};
  std::atomic<bool> taken{false};
  // It has given work to its per-thread default stream, of which nobody else can ask whether it is idle.
  std::atomic<bool> own_stream{false};
  Mark* next = nullptr;

  static constexpr bool inside(std::uint64_t count) { return (count & 1u) != 0; }
};

// What a thread knows of itself.
struct Thread {
  Mark* mark = nullptr;
  std::uint32_t depth = 0;        // nested passes
  std::uint32_t grace_used = 0;   // of the drain below: how often it was let through
  std::uint64_t grace_drain = 0;  // which drain
};

namespace detail {
extern constinit thread_local Thread self;
}  // namespace detail

// The calling thread's mark, taken from the registry at its first use and given back when the thread ends.
Mark& own_mark();

// All submissions so far, whether one is under way, and whether a thread that is alive has given work to its
// per-thread default stream.
struct Activity {
  std::uint64_t passes = 0;
  bool inside = false;
  bool own_streams = false;
};
// All marks added up.
Activity activity();

// In the child of a fork: gives back the marks of threads that did not come along.
void drop_other_marks();

}  // namespace sharedgpu::gate
