// SPDX-License-Identifier: Apache-2.0
// Memory that never leaves the GPU. There are two kinds. Memory that the program gets from the driver itself,
// such as arrays, is only counted here. Swappable memory is pinned in place when another process or a network
// card uses its physical location. Implements Pinning.
#pragma once

#include "interposer/memory/swap_freeing.h"

namespace sharedgpu {

class SwapPinning {
 public:
  SwapPinning(SwapCommon& common, GrowthAccount& growth, SwapFreeing& freeing)
      : common_(common), growth_(growth), freeing_(freeing) {}

  CUresult pin(Bytes size);
  void unpin(Bytes size) { growth_.take_back(Residency::Count::pinned, size); }
  void pin_unasked(Bytes size);
  CUresult settle(CUdeviceptr address, Bytes size);
  std::optional<AddressRange> to_merge(CUdeviceptr address) const;
  CUresult export_piece(CUdeviceptr base, unsigned index, Piece* piece);

 private:
  // Finds the handles at these addresses, except handles that are pinned in place already. Waits while one of
  // the handles is busy. Returns the result for settle().
  CUresult handles_to_settle(CUdeviceptr address, Bytes size, std::vector<Handle*>& found)
      REQUIRES(common_.mutex);

  SwapCommon& common_;
  GrowthAccount& growth_;
  SwapFreeing& freeing_;
};

}  // namespace sharedgpu
