// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/managed_memory.h"

#include "interposer/memory/managed_mover.h"

namespace sharedgpu {
namespace {

// Managed memory goes with the context in which it was made, so each block has its own.
SwapOptions each_alone(SwapOptions options) {
  options.large = {};
  return options;
}

}  // namespace

ManagedMemory::ManagedMemory(Device& device, const HostBudget& budget, Books& books,
                             const SwapOptions& options)
    : SwapMemory(device, budget, books, each_alone(options),
                 {.pool = nullptr, .mover = std::make_unique<ManagedMover>(device, budget)}) {}

// Its pages have no lasting place that others could know.
CUresult ManagedMemory::settle(CUdeviceptr /*address*/, Bytes /*size*/) { return CUDA_ERROR_NOT_SUPPORTED; }

}  // namespace sharedgpu
