// SPDX-License-Identifier: Apache-2.0
// Implements ProgramMemory. Memory that the program creates is a range with a reference count. The program
// maps the handles of the range at addresses of its choice.
#pragma once

#include "interposer/memory/swap_merging.h"
#include "interposer/memory/swap_pinning.h"

namespace sharedgpu {

class SwapProgram final : public ProgramMemory {
 public:
  SwapProgram(SwapCommon& common, SwapRanges& ranges, SwapFreeing& freeing, SwapPinning& pinning,
              SwapTurns& turns)
      : common_(common), ranges_(ranges), freeing_(freeing), pinning_(pinning), merger_(common, turns) {}

  CUresult create(Id* id, Bytes size, const CUmemAllocationProp& kind) override;
  std::optional<CUresult> release(Id id) override;
  std::optional<CUmemAllocationProp> properties(Id id) const override;
  std::optional<CUresult> map(CUdeviceptr address, Bytes size, Id id) override;
  std::optional<Id> retain(CUdeviceptr address) override;
  std::optional<Mapping> next(CUdeviceptr address, Bytes size) const override;
  CUresult unmap(CUdeviceptr address) override;
  CUresult set_access(CUdeviceptr address, const CUmemAccessDesc* access, std::size_t count) override;
  std::optional<CUresult> settle(Id id, CUmemGenericAllocationHandle* real) override;
  // See TurnMemory.
  CUresult merge(CUdeviceptr address);

 private:
  using Made = ProgramAllocations::Made;
  // While this object exists, no handles of the program's memory are merged. So the thread that made it may
  // go through the handles of a range and release the lock between two handles.
  class UseOfHandles {
   public:
    explicit UseOfHandles(SwapProgram& program);
    ~UseOfHandles();
    UseOfHandles(const UseOfHandles&) = delete;
    UseOfHandles& operator=(const UseOfHandles&) = delete;

   private:
    SwapProgram& program_;
  };
  CUresult drop_if_unused(Id id) REQUIRES(common_.mutex);
  CUresult show(Made& made, CUdeviceptr address) REQUIRES(common_.mutex);
  CUresult hide(Made& made, CUdeviceptr address) REQUIRES(common_.mutex);

  SwapCommon& common_;
  SwapRanges& ranges_;
  SwapFreeing& freeing_;
  SwapPinning& pinning_;
  SwapMerging merger_;
  unsigned users_ GUARDED_BY(common_.mutex) = 0;  // number of existing UseOfHandles objects
  bool merging_ GUARDED_BY(common_.mutex) = false;
};

}  // namespace sharedgpu
