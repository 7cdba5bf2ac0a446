// SPDX-License-Identifier: Apache-2.0
// Threads of ours in the process of a program or of Slurm: signals for that are never delivered to them.
#pragma once

#include <pthread.h>

namespace sharedgpu {

// To be joined or detached. Returns 0 or an errno value.
int start_own_thread(pthread_t* thread, void* (*run)(void*), void* argument);

}  // namespace sharedgpu
