// SPDX-License-Identifier: Apache-2.0
// Closing the gate, and when a closed gate lets a submission through all the same.
//
// arm(), close(), step() and hold() belong to the session, close() and step() to one thread at a time; the
// others may be called from any thread.
#pragma once

#include <cstdint>

#include "interposer/gate/pages.h"
#include "protocol/units.h"

namespace sharedgpu::gate {

// The process, as the gate knows it.
class GateListener {
 public:
  virtual ~GateListener() = default;
  // A thread begins to wait at the closed gate while no other does. Called on that thread; must not block.
  virtual void on_wait() = 0;
  // True if all memory of the process is on its GPUs: else nobody is let through for the sake of a drain that
  // drags on.
  virtual bool all_resident() = 0;
};
// Before the first session. The listener outlives the gate.
void arm(GateListener& listener);

// Before the first close(), by the thread that closes: in a program with threads the kernel takes 8 to 16 ms
// to register it with membarrier(2), so the thread that starts CUDA does not wait for that.
void prepare_to_close();

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

// Puts an open page of our own in the place of the arbiter's: this session keeps the gate closed no more.
void open_for_good(PageSlot slot = {});

// How often a thread may be let through a closed gate in a drain that has lasted for `elapsed`: first after
// half a second, then 10 ms later, 40 ms, 90 ms...
std::uint32_t grace(Nanoseconds elapsed);

// In the child of a fork: there is no lease.
void forget_lease();

// For a thread that is about to go inside, see gate.cpp.
namespace detail {
// True if it may although the gate is closed.
bool excused();
// True if nothing may pass a closed gate: Released is said, or about to be.
bool released();
// It is the first one that waits.
void tell_of_wait();
}  // namespace detail

}  // namespace sharedgpu::gate
