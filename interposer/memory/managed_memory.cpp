// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/managed_memory.h"

#include "interposer/memory/managed_mover.h"

namespace sharedgpu {
namespace {

// The driver frees managed memory when it destroys the context in which the memory was allocated. So each
// block gets a range of its own, and no arena holds blocks of several contexts.
SwapOptions each_alone(SwapOptions options) {
  options.large = {};
  return options;
}

}  // namespace

ManagedMemory::ManagedMemory(Device& device, HostBudget& budget, Books& books, const SwapOptions& options)
    : SwapMemory(
          device, budget, books, each_alone(options),
          {.pool = nullptr, .blocks = nullptr, .mover = std::make_unique<ManagedMover>(device, budget)}) {}

// Always fails, since managed pages have no fixed physical address that could be shared.
CUresult ManagedMemory::settle(CUdeviceptr /*address*/, Bytes /*size*/) { return CUDA_ERROR_NOT_SUPPORTED; }

}  // namespace sharedgpu
