// SPDX-License-Identifier: Apache-2.0
// The arbiter's lease pages of this process: one for each of its sessions, and so for each GPU that it uses.
//
// The gate is open when all of them are. Submissions look at one place in memory. A page that is alone is
// mapped there. If there are more, a page of our own lies there, and whoever looks at theirs with is_open()
// writes there what they say together: threads that wait, the closing side before it counts who is inside,
// and the service thread before it acts on a message, since the arbiter closes pages before it says what
// follows from that. A submission that passes our page meanwhile is as good as one that came in time. Whether
// a GPU is oversubscribed comes to our page with the turn threads' regular question, contended().
//
// Safe from all threads.
#pragma once

#include <cstddef>

#include "protocol/lease_page.h"
#include "protocol/units.h"

namespace sharedgpu::gate {

// One session of this process, by number: its lease page is one of those that must be open.
struct PageSlot {
  static constexpr unsigned kCount = 64;
  unsigned index = 0;
};

namespace detail {
#if defined(__x86_64__)
inline constexpr std::size_t kPageAlignment = 4096;
#else
inline constexpr std::size_t kPageAlignment = 65536;  // the largest page size that a kernel may use there
#endif
struct alignas(kPageAlignment) MappedPage {
  LeasePage page;
};
// Its address is constant, so that a reconnect can put another page there atomically; until a session does,
// it is a page of our own that is open.
extern MappedPage mapped;
}  // namespace detail

// The page that all threads look at.
inline const LeasePage& page() { return detail::mapped.page; }

// Whether tenants of a GPU of this process need more memory together than it has.
inline bool oversubscribed() { return page().oversubscribed.load(std::memory_order_relaxed) != 0; }

// How short its queues are to be then; zero: as usual.
inline Nanoseconds queue() {
  return std::chrono::microseconds(page().queue_us.load(std::memory_order_relaxed));
}

// When the turn ends that the page is open for, by CLOCK_BOOTTIME; zero: open end.
inline Nanoseconds turn_ends() { return Nanoseconds(page().turn_ends.load(std::memory_order_relaxed)); }

// Maps the lease page of `fd` in the place of the session's present one. False: errno says why, nothing has
// changed.
bool install(int fd, PageSlot slot = {});
// Puts an open page of our own in the place of the session's. If there is no memory for it, the arbiter's
// stays.
void leave_open(PageSlot slot);
// Whether the pages of all sessions are open, looked at just now.
bool is_open();
// Whether others wait for the GPU of this session.
bool contended(PageSlot slot);

// Sleeps while the first closed page stays closed, at most `timeout`. May return early.
void wait_while_closed(Nanoseconds timeout);

// Wakes all who sleep there: a closed gate may let them through now.
void wake_waiting();

// In the child of a fork: the parent's pages are none of ours.
void forget_pages();

}  // namespace sharedgpu::gate
