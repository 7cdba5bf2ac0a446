// SPDX-License-Identifier: Apache-2.0
// The lease pages of this process, which the arbiter writes: one for each session of the process, and so for
// each GPU that the process uses.
//
// The gate is open when all lease pages are open and the process has not paused its gate. Submissions read
// one fixed place in memory. If there is only one lease page, it is mapped at this place. If there are
// several lease pages, or the gate has been paused, a page of the interposer is mapped at this place: the
// combined page. Every call of is_open() writes the combined state of all pages to the combined page. Threads
// that wait at the gate call is_open(). The thread that closes the gate calls is_open() before it counts the
// threads inside. The service thread calls is_open() before it acts on a message, since the arbiter closes a
// page before it sends the message that depends on the closed page. If a submission reads the combined page
// as open before this page is updated, the submission counts as made before the gate closed. contended(),
// which the turn threads call regularly, writes to the combined page whether a GPU is oversubscribed.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/lease_page.h"
#include "protocol/units.h"

namespace sharedgpu::gate {

// Identifies a session of this process by a number. The session's lease page is one of the pages that must be
// open.
struct PageSlot {
  static constexpr unsigned kCount = 64;
  unsigned index = 0;
};

namespace detail {
#if defined(__x86_64__)
inline constexpr std::size_t kPageAlignment = 4096;
#else
inline constexpr std::size_t kPageAlignment = 65536;  // the largest page size that a Linux kernel may use
#endif
struct alignas(kPageAlignment) MappedPage {
  LeasePage page;
};
// The page that all threads read. The address of this page is constant, so that a reconnect can map another
// page there atomically. Until a session maps its page, an open page made by the interposer is mapped at this
// address.
extern MappedPage mapped;
}  // namespace detail

// The page that all threads read.
inline const LeasePage& page() { return detail::mapped.page; }

// Returns true if the tenants of a GPU of this process together need more memory than the GPU has.
inline bool oversubscribed() { return page().oversubscribed.load(std::memory_order_relaxed) != 0; }

// The backlog limit while the GPU is oversubscribed; zero for the usual limit.
inline Nanoseconds queue() {
  return std::chrono::microseconds(page().queue_us.load(std::memory_order_relaxed));
}

// The end of the current turn, by CLOCK_BOOTTIME; zero if the turn has no fixed end, or if submissions read
// the combined page.
inline Nanoseconds turn_ends() { return Nanoseconds(page().turn_ends.load(std::memory_order_relaxed)); }

// Maps the lease page of `fd` in place of the session's current one. On failure returns false and sets errno,
// and the page that submissions read is unchanged.
bool install(int fd, PageSlot slot = {});
// Maps an open page of the interposer in place of the session's lease page. If there is no memory for the
// open page, the arbiter's page stays mapped.
void leave_open(PageSlot slot);
// Returns true if the lease pages of all sessions are open and the gate is not paused.
bool is_open();
// Closes the gate for this process alone, whatever the lease pages say. The thread that pauses the gate then
// calls close() (closing.h). Returns the number of the pause, or zero if there is a pause already, or no
// memory for the combined page.
std::uint32_t pause();
// Ends the pause of this number; any thread may do so. Does nothing if this pause has ended already.
void resume(std::uint32_t pause);
bool paused();

// Returns true if other tenants wait for the GPU of this session.
bool contended(PageSlot slot);

// Sleeps while the first closed page stays closed, for at most `timeout`. May return early.
void wait_while_closed(Nanoseconds timeout);

// Wakes all threads that sleep in wait_while_closed(), since a closed gate may now let them through.
void wake_waiting();

// Drops the parent's pages. Call this in the child of a fork.
void forget_pages();

}  // namespace sharedgpu::gate
