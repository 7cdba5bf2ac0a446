// SPDX-License-Identifier: Apache-2.0
// Starts threads of sharedgpu inside a process of a user's program or of Slurm. All signals are blocked in
// these threads.
#pragma once

#include <pthread.h>

namespace sharedgpu {

// The caller joins or detaches the thread. Returns 0 or an errno value.
int start_own_thread(pthread_t* thread, void* (*run)(void*), void* argument);

}  // namespace sharedgpu
