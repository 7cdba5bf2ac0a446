// SPDX-License-Identifier: Apache-2.0
// The managed backend: cuMemAlloc returns managed memory. This memory takes part in turns like the swap
// backend's memory, so that the driver has no reason to page it. Evictions and restores are calls of
// cuMemPrefetchAsync.
#pragma once

#include "interposer/memory/swap_memory.h"

namespace sharedgpu {

class ManagedMemory final : public SwapMemory {
 public:
  // `device.reserve()` must return managed memory.
  ManagedMemory(Device& device, HostBudget& budget, Books& books, const SwapOptions& options = {});

  CUresult free_with(Destruction& destruction, const std::vector<CUdeviceptr>& blocks) override {
    return freeing().lose_with(destruction, blocks);
  }
  bool goes_with_contexts() const override { return true; }
  CUresult settle(CUdeviceptr address, Bytes size) override;
  ProgramMemory* program_memory() override { return nullptr; }
};

}  // namespace sharedgpu
