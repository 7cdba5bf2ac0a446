// SPDX-License-Identifier: Apache-2.0
// An asymmetric memory fence: nearly free for the threads that submit, expensive for the thread that closes
// the gate.
#pragma once

#include <atomic>

namespace sharedgpu::gate {

// Registers the process with the Linux kernel, so that process_fence() is quick. May be called repeatedly.
// The child of a fork must call this function again.
void prepare_fence();

// The slow half of the fence. When process_fence() returns, each thread of the process has executed a full
// memory fence since the call, or executes one in each light_fence().
void process_fence();

namespace detail {
extern std::atomic<bool> fence_every_pass;
}

// The fast half of the fence, between the store to the pass counter and the load of the gate. This is only a
// compiler fence; process_fence() ensures that the processor does not reorder the store and the load. If a
// sandbox forbids membarrier(2), x86-64 has another way to interrupt all threads; on other architectures each
// submission then pays for a full fence.
inline void light_fence() {
#if !defined(__x86_64__)
  if (detail::fence_every_pass.load(std::memory_order_relaxed)) [[unlikely]]
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace sharedgpu::gate
