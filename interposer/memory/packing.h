// SPDX-License-Identifier: Apache-2.0
// Carves blocks out of regions of addresses: best fit, neighbours joined when they are freed, O(log n).
//
// Knows addresses only, touches no memory, asks no driver. Not thread-safe.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "protocol/units.h"

namespace sharedgpu {

class Packing {
 public:
  static constexpr Bytes kAlignment{512};  // of every block, as cuMemAlloc gives it
  // What a block of `size` bytes takes.
  static Bytes round_up(Bytes size);

  // With a first block of `first` bytes at its base, if that is not 0.
  void add_region(CUdeviceptr base, Bytes size, Bytes first = {});
  // The region must hold no block.
  void remove_region(CUdeviceptr base);

  // The smallest free place that holds `size` > 0 bytes, the lowest of those. nullopt: none does.
  std::optional<CUdeviceptr> take(Bytes size);
  // Cuts a block in two, the first of which has room for `size` bytes, less than the whole. Returns the
  // second.
  CUdeviceptr split(CUdeviceptr block, Bytes size);
  // Frees a block that take() gave. Returns the base of its region.
  CUdeviceptr give(CUdeviceptr block);
  // Whether the region holds no block.
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
  Bytes total_;                                           // of all regions
};

}  // namespace sharedgpu
