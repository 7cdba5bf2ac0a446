// SPDX-License-Identifier: Apache-2.0
// The managed backend: cuMemAlloc's memory is managed memory, which the driver could page by itself. It takes
// the same turns as the swap backend's, so it never has to: what leaves and comes back is moved by
// prefetches.
#pragma once

#include "interposer/memory/managed_mover.h"
#include "interposer/memory/swap_memory.h"

namespace sharedgpu {

class ManagedMemory final : public SwapMemory {
 public:
  // `device`: one whose reserve() gives managed memory.
  ManagedMemory(Device& device, const HostBudget& budget, Books& books, const SwapOptions& options = {})
      : SwapMemory(device, budget, books, each_alone(options),
                   std::make_unique<ManagedMover>(device, budget)) {}

  using SwapMemory::settle;
  // Its pages have no lasting place.
  CUresult settle(CUdeviceptr /*address*/, Bytes /*size*/) override { return CUDA_ERROR_NOT_SUPPORTED; }
  ProgramMemory* program_memory() override { return nullptr; }

 private:
  // Managed memory goes with the context in which it was made, so blocks share none.
  static SwapOptions each_alone(SwapOptions options) {
    options.large = {};
    return options;
  }
};

}  // namespace sharedgpu
