// SPDX-License-Identifier: Apache-2.0
// The swap backend. An address range lasts as long as its allocations, but its handles have device memory
// only while they are neither evicted nor away. Evicted contents are in pinned host memory. This class only
// connects its parts. See README.md in this directory.
#pragma once

#include <vector>

#include "interposer/memory/host_system.h"
#include "interposer/memory/swap_blocks.h"
#include "interposer/memory/swap_exchange.h"
#include "interposer/memory/swap_pinning.h"
#include "interposer/memory/swap_program.h"
#include "interposer/memory/swap_turns.h"

namespace sharedgpu {

class SwapMemory : public Memory {
 public:
  // All arguments outlive the object.
  SwapMemory(Device& device, HostBudget& budget, HostSystem& system, Books& books,
             const SwapOptions& options = {});
  // Frees all memory. Only for tests: when a process ends, the driver frees its memory.
  ~SwapMemory() override;

  CUresult allocate(CUdeviceptr* address, Bytes size) override { return blocks_.allocate(address, size); }
  std::optional<CUresult> free(CUdeviceptr address) override { return freeing_.free(address, Gpu::may_run); }
  std::optional<CUresult> free_unused(CUdeviceptr address) override {
    return freeing_.free(address, Gpu::drained);
  }
  CUresult free_with(Destruction& destruction, const std::vector<CUdeviceptr>& blocks) override {
    return freeing_.free_with(destruction, blocks);
  }
  bool frees_late() const override { return common_.device.unreserve_waits(); }
  std::optional<AddressRange> find(CUdeviceptr address) const override;
  Bytes due() const override { return freeing_.due(); }

  CUresult pin(Bytes size) override { return pinning_.pin(size); }
  void unpin(Bytes size) override { pinning_.unpin(size); }
  void pin_unasked(Bytes size) override { pinning_.pin_unasked(size); }
  CUresult take_host(Bytes size) override {
    return growth_.take_host(size) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  }
  void give_host(Bytes size) override { growth_.give_host(size); }
  CUresult settle(CUdeviceptr address, Bytes size) override { return pinning_.settle(address, size); }
  std::optional<AddressRange> to_merge(CUdeviceptr address) const override {
    return pinning_.to_merge(address);
  }
  bool exportable() const override { return common_.device.exportable(); }
  CUresult export_piece(CUdeviceptr base, unsigned index, Piece* piece) override {
    return pinning_.export_piece(base, index, piece);
  }

  MemoryUse use() const override { return growth_.reading().use; }
  Bytes job_host_limit() const override { return growth_.job_host_limit(); }
  Reading reading() const override { return growth_.reading(); }
  Bytes uncharged() const override { return growth_.uncharged(); }
  Traffic moved() const override { return common_.mover->moved(); }
  void set_context_size(Bytes size) override { growth_.set_context_size(size); }

  void set_allowed(Bytes allowed) override { turns_.set_allowed(allowed); }
  Bytes allowed() const override { return turns_.allowed(); }
  bool evict() override { return turns_.evict(); }
  Eviction last_eviction() const override { return turns_.last_eviction(); }
  bool restore() override { return turns_.restore(); }
  CUresult merge(CUdeviceptr address) override { return program_.merge(address); }
  void prepare_host(Bytes size, unsigned sharers) override {
    if (common_.pool) common_.pool->prepare(size, sharers);
  }
  void tend_freed() override { freeing_.free_deferred(Gpu::may_be_idle); }
  void tend() override {
    turns_.tend();
    if (common_.blocks) exchange_.tend();
  }
  bool watch_host() override { return turns_.watch_host(); }

  void renew_access() override { ranges_.renew_access(); }
  ProgramMemory* program_memory() override { return &program_; }
  AwayMemory* away_memory() override { return common_.blocks ? &exchange_ : nullptr; }

  // Returns a copy of every handle, in the order of their addresses. For tests; no other thread may be moving
  // a handle.
  std::vector<Handle> handles() const;

 protected:
  struct Moving {
    std::unique_ptr<HostPool> pool;
    std::unique_ptr<AwayBlocks> blocks;
    std::unique_ptr<Mover> mover;
  };
  SwapMemory(Device& device, HostBudget& budget, Books& books, const SwapOptions& options, Moving moving);
  SwapFreeing& freeing() { return freeing_; }

 private:
  using Gpu = SwapFreeing::Gpu;

  static Moving moving_to_host(Device& device, HostBudget& budget, HostSystem& system);

  mutable SwapCommon common_;
  GrowthAccount growth_{common_};
  SwapRanges ranges_{common_, growth_};
  SwapFreeing freeing_{common_, ranges_};
  SwapBlocks blocks_{common_, ranges_, freeing_};
  SwapPinning pinning_{common_, growth_, freeing_};
  SwapTurns turns_{common_, growth_, freeing_};
  SwapProgram program_{common_, ranges_, freeing_, pinning_, turns_};
  SwapExchange exchange_{common_};
};

}  // namespace sharedgpu
