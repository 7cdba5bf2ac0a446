// SPDX-License-Identifier: Apache-2.0
// Starts our threads in a process of a program or of Slurm, with all signals blocked in them.
#pragma once

#include <pthread.h>

namespace sharedgpu {

// The caller joins or detaches the thread. Returns 0 or an errno value.
int start_own_thread(pthread_t* thread, void* (*run)(void*), void* argument);

}  // namespace sharedgpu
