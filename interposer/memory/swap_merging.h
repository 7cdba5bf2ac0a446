// SPDX-License-Identifier: Apache-2.0
// Makes one handle of the handles of memory that the program has created. The program exports such memory as
// one piece of physical memory. Before the export, the memory has several handles, which can be moved one by
// one.
#pragma once

#include "interposer/memory/swap_turns.h"

namespace sharedgpu {

class SwapMerging {
 public:
  SwapMerging(SwapCommon& common, SwapTurns& turns) : common_(common), turns_(turns) {}

  // Evicts all handles of the range, and restores their contents to a single handle at the same addresses.
  // Returns CUDA_ERROR_NOT_READY if a part of the memory is not on the GPU, CUDA_ERROR_OUT_OF_MEMORY if host
  // memory or device memory is missing, and another error if the driver fails. After a failure no contents
  // are lost, but some handles may be evicted. Only the turn thread calls this, while no work of the process
  // runs and no other thread changes the views of the range.
  CUresult merge(Range& range);

 private:
  CUresult restore_as_one(Range& range);

  SwapCommon& common_;
  SwapTurns& turns_;
};

}  // namespace sharedgpu
