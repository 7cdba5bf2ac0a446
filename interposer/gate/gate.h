// SPDX-License-Identifier: Apache-2.0
// The gate that every submission to the GPU passes, and its closing.
//
// Passing costs one load of the lease page and a store to the thread's own mark, no locked instruction. The
// closing side pays: after the arbiter has written the page, the session's turn thread calls close(), which
// makes all threads' marks visible with membarrier(2) and waits for those inside.
//
// A gate that is closed still lets a submission through while a stream of this process is being captured,
// and, one for each thread and ever more rarely, while a drain drags on: the lease is held until
// Released is said, so letting work through is always safe, and a program whose kernel waits for the
// program's own next submission is not hung. For a kernel that waits for the submission of another process
// there is step(). See docs/design/gate.md.
#pragma once

#include <atomic>
#include <cstdint>

#include "interposer/gate/fence.h"
#include "protocol/lease_page.h"

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

// Where the lease page is mapped; a process with several sessions has a page of its own there, see pages.h.
// Its address is constant, so that a reconnect can put another page there atomically; until a session does,
// it is a page of our own that is open.
#if defined(__x86_64__)
inline constexpr std::size_t kPageAlignment = 4096;
#else
inline constexpr std::size_t kPageAlignment = 65536;  // the largest page size that a kernel may use there
#endif
struct alignas(kPageAlignment) PageSlot {
  LeasePage page;
};

namespace detail {
extern PageSlot slot;
extern constinit thread_local Thread self;
void enter_slowly();
}  // namespace detail

// The page that all threads look at.
inline const LeasePage& page() { return detail::slot.page; }

// Whether tenants of a GPU of this process need more memory together than it has.
inline bool oversubscribed() { return page().oversubscribed.load(std::memory_order_relaxed) != 0; }

// How short its queues are to be then; zero: as usual.
inline Nanoseconds queue() {
  return std::chrono::microseconds(page().queue_us.load(std::memory_order_relaxed));
}

// When the turn ends that the page is open for, by CLOCK_BOOTTIME; zero: open end.
inline Nanoseconds turn_ends() { return Nanoseconds(page().turn_ends.load(std::memory_order_relaxed)); }

// Whether the calling thread is inside.
inline bool inside() { return detail::self.depth != 0; }

// RAII: inside from construction to destruction. Nests (a driver entry point may call another through our
// door): only the outermost counts. Blocks while the gate is closed.
class Pass {
 public:
  Pass() {
    Thread& self = detail::self;
    if (self.depth++ != 0) return;
    if (Mark* mark = self.mark; mark != nullptr) [[likely]] {
      std::uint64_t before = mark->count.load(std::memory_order_relaxed);
      mark->count.store(before + 1, std::memory_order_relaxed);
      light_fence();
      if (LeasePage::is_open(page().gate.load(std::memory_order_acquire))) [[likely]]
        return;
      mark->count.store(before, std::memory_order_release);
    }
    detail::enter_slowly();
  }
  ~Pass() {
    Thread& self = detail::self;
    if (--self.depth != 0) return;
    Mark* mark = self.mark;
    mark->count.store(mark->count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  // The work goes to the per-thread default stream.
  void to_own_stream() { detail::self.mark->own_stream.store(true, std::memory_order_relaxed); }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;
};

}  // namespace sharedgpu::gate
