// SPDX-License-Identifier: Apache-2.0
#include "interposer/gate/captures.h"

#include <atomic>
#include <cstdint>

namespace sharedgpu::gate {
namespace {

constinit std::atomic<std::uint32_t> captures{0};

}  // namespace

void capture_began() { captures.fetch_add(1, std::memory_order_seq_cst); }
void capture_ended() { captures.fetch_sub(1, std::memory_order_seq_cst); }
bool capturing() { return captures.load(std::memory_order_seq_cst) != 0; }
void forget_captures() { captures.store(0, std::memory_order_relaxed); }

}  // namespace sharedgpu::gate
