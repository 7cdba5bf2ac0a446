// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/swap_blocks.h"

#include <algorithm>
#include <bit>

namespace sharedgpu {

CUresult SwapBlocks::allocate(CUdeviceptr* address, Bytes size) {
  if (address == nullptr || size.count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (size > kLargestAllocation) return CUDA_ERROR_OUT_OF_MEMORY;
  const Bytes exact = round_up(size, common_.device.granularity());
  return freeing_.make_room([&](Wish wish) {
    return size < common_.options.large
               ? allocate_small(address, size, exact, wish)
               : grow(address, size, {.size = exact, .handle = common_.options.handle}, wish);
  });
}

// Allocates a block in an arena. While this thread waits for the lock, another thread may add an arena. So
// this thread tries all arenas again before it adds an arena itself.
CUresult SwapBlocks::allocate_small(CUdeviceptr* address, Bytes size, Bytes exact, Wish wish) {
  if (take_from_arenas(address, size)) return CUDA_SUCCESS;
  const std::lock_guard arenas(arena_growth_);
  if (take_from_arenas(address, size)) return CUDA_SUCCESS;
  const Bytes roomy = next_arena(exact);
  if (roomy != exact) {
    const CUresult result = grow(address, size, {.size = roomy, .handle = roomy, .arena = true}, Wish::tried);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  }
  return grow(address, size, {.size = exact, .handle = exact, .arena = true}, wish);
}

bool SwapBlocks::take_from_arenas(CUdeviceptr* address, Bytes size) {
  const MutexLock lock(common_.mutex);
  Range* const arena = common_.space.take_from_arenas(address, size);
  if (arena != nullptr) common_.residency.note_use(*arena);
  return arena != nullptr;
}

// Returns the size of a new arena: up to a quarter of the size of all arenas, but at least `needed`. With
// this size, many small blocks share few handles, and less than about a quarter of the arenas is unused.
Bytes SwapBlocks::next_arena(Bytes needed) const {
  const MutexLock lock(common_.mutex);
  const Bytes quarter = std::min(Bytes{common_.space.arenas().count / 4}, common_.options.largest_arena);
  return std::max(round_up({std::bit_floor(quarter.count)}, common_.device.granularity()), needed);
}

CUresult SwapBlocks::grow(CUdeviceptr* address, Bytes size, const SwapRanges::Form& form, Wish wish) {
  Range* range = nullptr;
  const CUresult result = ranges_.add(&range, form, wish);
  if (result != CUDA_SUCCESS) return result;
  {
    const MutexLock lock(common_.mutex);
    common_.space.add_block(*range, size);
    common_.residency.note_use(*range);
    *address = range->base;
  }
  common_.books.report(false);  // the request for growth was sent before the new memory became resident
  return CUDA_SUCCESS;
}

}  // namespace sharedgpu
