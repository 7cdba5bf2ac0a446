// SPDX-License-Identifier: Apache-2.0
// The session's side of the gate: closing it, and what must be known to close it well.
//
// install(), close() and hold() belong to the session, close() to one thread at a time; the others may be
// called from any thread.
#pragma once

#include "interposer/gate/gate.h"
#include "protocol/units.h"

namespace sharedgpu::gate {

// Before the first close(), by the thread that closes: in a program with threads the kernel takes 8 to 16 ms
// to register it with membarrier(2), so the thread that starts CUDA does not wait for that.
void prepare_to_close();

// `on_wait` is called by a thread that begins to wait at
// the closed gate while no other does; it must not block.
// `complete` tells whether all memory is there: else nobody is let through for the sake of a drain that drags
// on.
void arm(void (*on_wait)(), bool (*complete)() = nullptr);

// One session of this process, by number: its lease page is one of those that must be open.
struct Seat {
  static constexpr unsigned kCount = 64;
  unsigned index = 0;
};

// Maps the lease page of `fd` in the place of the session's present one. False: errno says why, nothing has
// changed.
bool install(int fd, Seat seat = {});
// Whether the pages of all sessions are open, looked at just now.
bool is_open();
// Whether others wait for the GPU of this session.
bool contended(Seat seat);

// The lease is, or will be as soon as the page opens, ours: submissions during a capture may pass a closed
// gate until close() has returned. Called before Ready is said, and for a page that is open from the start.
void hold();
// Whether the lease is held, as far as this process knows: since hold(), or since the page opened, and until
// close() returned true.
bool held();

// What the closing side does to wait for the GPU: returns true when everything submitted so far is done,
// false where that could not be waited for and is to be tried again.
class Drain {
 public:
  virtual ~Drain() = default;
  virtual bool drain() = 0;
};

// Waits until the arbiter's closing of the page is obeyed: nobody is inside, no stream is being captured, and
// the GPU has done all that was submitted. True: from here on nothing passes until the page opens. False: the
// page was opened again meanwhile; the lease is still held.
bool close(Drain& drain);
// After close() has returned true: the lease goes on for as long as this takes, and each thread that waits at
// the closed gate may pass once, if one comes soon. What they submit is drained; as in close(), where that
// drags on they may pass again, ever more rarely. Returns what close() does.
bool step(Drain& drain);

// Streams of this process that are being captured now.
void capture_began();
void capture_ended();
bool capturing();

// Whether threads wait at the gate.
bool wanted();
// When one that had waited was let in last, by CLOCK_BOOTTIME.
Nanoseconds let_in();

// For the idle watch: all submissions so far, whether one is under way, and whether a thread that is alive
// has given work to its per-thread default stream.
struct Activity {
  std::uint64_t passes = 0;
  bool inside = false;
  bool own_streams = false;
};
Activity activity();

// Puts an open page of our own in the place of the arbiter's: this session keeps the gate closed no more.
void open_for_good(Seat seat = {});

// In the child of a fork, where only the calling thread lives: an open page, no marks but its own.
void after_fork();

// How often a thread may be let through a closed gate in a drain that has lasted for `elapsed`: first after
// half a second, then 10 ms later, 40 ms, 90 ms...
std::uint32_t grace(Nanoseconds elapsed);

}  // namespace sharedgpu::gate
