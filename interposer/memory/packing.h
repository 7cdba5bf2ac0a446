// SPDX-License-Identifier: Apache-2.0
// Allocates blocks within address regions: best fit, free neighbours are merged, each call takes O(log n).
//
// Computes with addresses only: never touches memory, and never calls the driver. Not thread-safe.
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
  // The bytes that a block of `size` bytes occupies in its region.
  static Bytes round_up(Bytes size) { return sharedgpu::round_up(size, kAlignment); }

  // Adds a region. If `first` is not 0, the region begins with a block of `first` bytes that is in use.
  void add_region(CUdeviceptr base, Bytes size, Bytes first = {});
  // Removes a region, which must hold no block.
  void remove_region(CUdeviceptr base);

  // Allocates a block of `size` > 0 bytes at the start of the smallest free span that is large enough (of
  // several, the one with the lowest address); nullopt if no span is large enough.
  std::optional<CUdeviceptr> take(Bytes size);
  // Splits a block in two. The first part holds `size` bytes, which must be fewer than the whole block has.
  // Returns the second part.
  CUdeviceptr split(CUdeviceptr block, Bytes size);
  // Frees a block. Returns the base of the block's region.
  CUdeviceptr give(CUdeviceptr block);
  // Returns true if the region holds no block.
  bool is_empty(CUdeviceptr region) const;

  Bytes total() const { return total_; }

 private:
  // Spans cover each region completely. Two free spans of a region are never adjacent.
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
  std::set<std::pair<std::uint64_t, CUdeviceptr>> free_;  // the free spans, each as (size, address)
  Bytes total_;                                           // total size of all regions
};

}  // namespace sharedgpu
