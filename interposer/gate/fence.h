// SPDX-License-Identifier: Apache-2.0
// An asymmetric memory fence: nearly free for the threads that submit, dear for the one that closes the gate.
#pragma once

#include <atomic>

namespace sharedgpu::gate {

// Registers with the kernel, so that process_fence() is quick. May be called again (in the child of a fork it
// must be).
void prepare_fence();

// The slow half. When this returns, each thread of the process has passed a full memory fence since the call,
// or passes one in each light_fence().
void process_fence();

namespace detail {
extern std::atomic<bool> fence_every_pass;
}

// The fast half, between a submission's mark and its look at the gate. Only the compiler is told: that the
// processor does not turn the two round is process_fence()'s doing. Where a sandbox forbids membarrier(2),
// x86-64 has another way to interrupt all threads; elsewhere each submission then pays for a fence.
inline void light_fence() {
#if !defined(__x86_64__)
  if (detail::fence_every_pass.load(std::memory_order_relaxed)) [[unlikely]]
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace sharedgpu::gate
