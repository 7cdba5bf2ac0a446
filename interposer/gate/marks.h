// SPDX-License-Identifier: Apache-2.0
// The registry of all threads' marks: a list that only grows, read and extended without locks.
#pragma once

#include "interposer/gate/control.h"

namespace sharedgpu::gate {

// The calling thread's mark, taken from the registry at its first use and given back when the thread ends.
Mark& own_mark();

// All marks added up.
Activity sum_marks();

// In the child of a fork: gives back the marks of threads that did not come along.
void drop_other_marks();

}  // namespace sharedgpu::gate
