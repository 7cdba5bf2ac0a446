// SPDX-License-Identifier: Apache-2.0
// Whether this process has memory beyond the window on any GPU. Each launch reads this. Once true, it stays
// true. Thread-safe.
#pragma once

#include <atomic>

namespace sharedgpu::oversize {

namespace detail {
extern std::atomic<bool> active;
}  // namespace detail

inline bool is_active() { return detail::active.load(std::memory_order_relaxed); }
inline void activate() { detail::active.store(true, std::memory_order_relaxed); }

}  // namespace sharedgpu::oversize
