// SPDX-License-Identifier: Apache-2.0
// A flag that tells whether this process has ever had memory beyond the window on a GPU. Each launch reads
// the flag. Once set, it stays set, except in the child of a fork. Thread-safe.
#pragma once

#include <atomic>

namespace sharedgpu::oversize {

namespace detail {
extern std::atomic<bool> active;
}  // namespace detail

inline bool is_active() { return detail::active.load(std::memory_order_relaxed); }
inline void after_fork() { detail::active.store(false, std::memory_order_relaxed); }
inline void activate() { detail::active.store(true, std::memory_order_relaxed); }

}  // namespace sharedgpu::oversize
