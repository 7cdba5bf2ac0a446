// SPDX-License-Identifier: Apache-2.0
// Closes the gate, and decides when a closed gate lets a submission through anyway.
//
// Only the session calls arm(), close(), step() and hold(), and only one thread at a time calls close() or
// step(). The other functions are thread-safe.
#pragma once

#include <cstdint>

#include "interposer/gate/pages.h"
#include "protocol/units.h"

namespace sharedgpu::gate {

// The functions of the process that the gate calls.
class GateListener {
 public:
  virtual ~GateListener() = default;
  // Called when a thread begins to wait at a gate that a lease page closes, and no other thread waits there.
  // The waiting thread makes this call, which must not block. A thread that has waited while the gate was
  // paused calls on_wait(), too, if a lease page closes the gate after the pause.
  virtual void on_wait() = 0;
  // Returns true if all memory of the process, except away memory, is on its GPUs. While this returns false,
  // no thread gets the passes of grace().
  virtual bool all_resident() = 0;
};
// Called before the first session begins. The listener outlives the gate.
void arm(GateListener& listener);

// Called before the first close(), by the thread that will call close(). In a program with several threads,
// the Linux kernel takes 8 to 16 ms to register the process with membarrier(2). The closing thread registers
// the process, so the thread that starts CUDA does not wait.
void prepare_to_close();

// Records that this process holds the lease, or will hold it as soon as the page opens. Submissions during a
// capture may then pass a closed gate until close() returns true. Called before Ready is sent, and for a page
// that is open from the start.
void hold();
// Returns true if this process knows that it holds the lease: from hold() or the opening of the page until
// close() returns true.
bool held();

// Waits for the GPU on behalf of the thread that closes the gate. drain() returns true when everything
// submitted so far is done, and false if a capture prevented the wait; the caller must then call drain()
// again.
class Drain {
 public:
  virtual ~Drain() = default;
  virtual bool drain() = 0;
};

// Waits until no thread is inside, no stream is being captured, and the GPU has done all submitted work.
// Called after the arbiter has closed the page, or after pause() (pages.h). Returns true if no submission
// passes the gate from now until the page opens. Returns false if the gate has opened again meanwhile; the
// lease is then still held.
bool close(Drain& drain);
// Permits a single submission by each waiting thread, after close() has returned true. From this call on, the
// process counts as holding the lease again, until step() returns true. Each thread that waits at the closed
// gate, or begins to wait within a short time, may pass once. Then step() drains the new work. If this drain
// is long, threads may pass again at growing intervals, as in close(). The result has the same meaning as
// that of close().
bool step(Drain& drain);

// Replaces the arbiter's page with an open page of the interposer, so that this session does not keep the
// gate closed.
void open_for_good(PageSlot slot = {});

// The number of times that one thread may pass a closed gate during a drain that has lasted for `elapsed`.
// The first pass is permitted half a second after the drain began. The following passes are permitted 10 ms,
// 40 ms, 90 ms... after that time.
std::uint32_t grace(Nanoseconds elapsed);

// Forgets the listener given to arm(). Call this in the child of a fork, which has no session.
void forget_lease();

// The functions below are called by a thread that is about to enter; see gate.cpp.
namespace detail {
// Returns true if the thread may enter although the gate is closed.
bool excused();
// Returns true if nothing may pass a closed gate: the process holds no lease, or will send Released at once.
bool released();
// Calls GateListener::on_wait() of the listener given to arm().
void tell_of_wait();
}  // namespace detail

}  // namespace sharedgpu::gate
