// SPDX-License-Identifier: Apache-2.0
// Carves blocks out of address regions: best fit, free neighbours merged, O(log n).
//
// Handles addresses only; touches no memory and calls no driver. Not thread-safe.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "protocol/units.h"

namespace sharedgpu {

// The smallest multiple of `unit` that is at least `size`.
constexpr Bytes round_up(Bytes size, Bytes unit) {
  return {(size.count + unit.count - 1) / unit.count * unit.count};
}

class Packing {
 public:
  static constexpr Bytes kAlignment{512};  // alignment of every block, as in cuMemAlloc
  // The bytes that a block of `size` bytes takes.
  static Bytes round_up(Bytes size) { return sharedgpu::round_up(size, kAlignment); }

  // Adds a region, with a first block of `first` bytes at its base if `first` is not 0.
  void add_region(CUdeviceptr base, Bytes size, Bytes first = {});
  // Removes a region, which must hold no block.
  void remove_region(CUdeviceptr base);

  // Takes the smallest free span that holds `size` > 0 bytes, the lowest if there are several; nullopt if
  // none does.
  std::optional<CUdeviceptr> take(Bytes size);
  // Splits a block in two. The first part has room for `size` bytes, which is less than the whole span.
  // Returns the second part.
  CUdeviceptr split(CUdeviceptr block, Bytes size);
  // Frees a block from take(). Returns the base of the block's region.
  CUdeviceptr give(CUdeviceptr block);
  // Returns true if the region holds no block.
  bool is_empty(CUdeviceptr region) const;

  Bytes total() const { return total_; }

 private:
  // Regions are cut into spans without a gap; no two free spans of a region touch.
  struct Span {
    Bytes size;
    CUdeviceptr region = 0;
    bool free = true;
  };
  using Spans = std::map<CUdeviceptr, Span>;

  void cut(Spans::iterator span, Bytes size);
  void set_free(Spans::iterator span);
  void set_taken(Spans::iterator span);

  Spans spans_;
  std::set<std::pair<std::uint64_t, CUdeviceptr>> free_;  // (size, address)
  Bytes total_;                                           // total size of all regions
};

}  // namespace sharedgpu
