// SPDX-License-Identifier: Apache-2.0
// Frees the program's blocks, now or later. A free is deferred in three cases: a capture forbids waiting,
// another process has imported the memory, or the driver would wait for the GPU although the program's call
// must not wait. Thread-safe.
#pragma once

#include "interposer/memory/deferred_frees.h"
#include "interposer/memory/swap_ranges.h"

namespace sharedgpu {

class SwapFreeing {
 public:
  // The state of the process's work on the GPU. `may_run`: work may be running, so a free waits for it.
  // `may_be_idle`: memory is freed only if a query shows that the work is done. `drained`: no work is
  // running.
  enum class Gpu { may_run, may_be_idle, drained };

  SwapFreeing(SwapCommon& common, SwapRanges& ranges) : common_(common), ranges_(ranges) {}

  std::optional<CUresult> free(CUdeviceptr address, Gpu gpu);
  CUresult free_with(Destruction& destruction, const std::vector<CUdeviceptr>& blocks);
  // Does the same as free_with() for blocks that the driver frees when it destroys the context. Each block
  // must have a range of its own. The driver then also frees the blocks of this context that wait for a
  // deferred free.
  CUresult lose_with(Destruction& destruction, const std::vector<CUdeviceptr>& blocks);
  void free_deferred(Gpu gpu);
  // The bytes that will be released by the deferred frees.
  Bytes due() const;
  // Calls `take`, which requests growth. If the growth fails for lack of memory and frees are deferred,
  // carries out these frees and calls `take` again.
  template <class Take>
  CUresult make_room(Take take) {
    if (defers()) {
      const CUresult result = take(Wish::tried);
      if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
      free_deferred(Gpu::may_run);
    }
    return take(Wish::needed);
  }

 private:
  bool condemn(CUdeviceptr address);
  void reprieve(CUdeviceptr address);
  CUresult free_condemned(CUdeviceptr address, Gpu gpu);
  CUresult free_block(CUdeviceptr address, Gpu gpu);
  bool defers() const;

  SwapCommon& common_;
  SwapRanges& ranges_;
  DeferredFrees deferred_ GUARDED_BY(common_.mutex);
};

}  // namespace sharedgpu
