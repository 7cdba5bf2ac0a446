// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>

#include "protocol/messages.h"

namespace sharedgpu {

// The totals of a tenant or of one of its steps beside lease time: on this node, over all GPUs and processes,
// ended ones included.
struct Figures {
  Traffic moved = {};
  Nanoseconds waited{};        // a thread waited at the gate, and no lease was held
  Nanoseconds overuse{};       // the gates were closed, and work still ran on the GPU
  std::uint64_t handoffs = 0;  // how often the lease was given up, to others or for idleness
  Bytes footprint = {};        // the highest
  Bytes resident = {};         // the same
  unsigned backends = 0;       // a bit for each that its sessions had
  auto operator<=>(const Figures&) const = default;
};

}  // namespace sharedgpu
