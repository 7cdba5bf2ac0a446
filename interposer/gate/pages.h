// SPDX-License-Identifier: Apache-2.0
// The arbiter's lease pages of this process: one for each of its sessions, and so for each GPU that it uses.
//
// The gate is open when all of them are. A page that is alone lies in the slot itself. Where there are more,
// the slot holds a page of our own, and whoever looks at theirs with is_open() writes there what they say
// together: threads that wait, the closing side before it counts who is inside, and the service thread before
// it acts on a message, since the arbiter closes pages before it says what follows from that. A submission
// that passes our page meanwhile is as good as one that came in time. Whether a GPU is oversubscribed comes
// to our page with the turn threads' regular question, contended().
//
// Safe from all threads.
#pragma once

#include "interposer/gate/control.h"

namespace sharedgpu::gate {

// Sleeps while the first closed page stays closed, at most `timeout`. May return early.
void wait_while_closed(Nanoseconds timeout);

// Wakes all who sleep there: a closed gate may let them through now.
void wake_waiting();

// In the child of a fork: the parent's pages are none of ours.
void forget_pages();

}  // namespace sharedgpu::gate
