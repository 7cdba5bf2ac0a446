// SPDX-License-Identifier: Apache-2.0
// Allocates the program's blocks: a large block gets a range of its own, small blocks share arenas.
// Thread-safe.
#pragma once

#include <mutex>

#include "interposer/memory/swap_freeing.h"

namespace sharedgpu {

class SwapBlocks {
 public:
  SwapBlocks(SwapCommon& common, SwapRanges& ranges, SwapFreeing& freeing)
      : common_(common), ranges_(ranges), freeing_(freeing) {}

  CUresult allocate(CUdeviceptr* address, Bytes size);

 private:
  CUresult allocate_small(CUdeviceptr* address, Bytes size, Bytes exact, Wish wish);
  bool take_from_arenas(CUdeviceptr* address, Bytes size);
  Bytes next_arena(Bytes needed) const;
  CUresult grow(CUdeviceptr* address, Bytes size, const SwapRanges::Form& form, Wish wish);

  SwapCommon& common_;
  SwapRanges& ranges_;
  SwapFreeing& freeing_;
  std::mutex arena_growth_;  // held by the thread that adds an arena; taken before all other locks
};

}  // namespace sharedgpu
