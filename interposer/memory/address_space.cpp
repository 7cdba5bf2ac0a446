// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/address_space.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sharedgpu {

Range& AddressSpace::add(CUdeviceptr base, Bytes size, bool arena, CUcontext context, Bytes handle_size) {
  Range& range = ranges_.emplace(base, Range{base, size, arena, context, {}}).first->second;
  range.handles = cut_into_handles(range, handle_size);
  return range;
}

Handle* AddressSpace::handle_at(CUdeviceptr address) {
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return nullptr;
  std::vector<Handle>& handles = std::prev(after)->second.handles;
  const auto found = std::ranges::find(handles, address, &Handle::address);
  return found == handles.end() ? nullptr : &*found;
}

void AddressSpace::add_block(Range& range, Bytes size) {
  if (range.arena) packing_.add_region(range.base, range.size, size);
  blocks_.insert_or_assign(range.base, Block{size, &range});
}

Range* AddressSpace::take_from_arenas(CUdeviceptr* address, Bytes size) {
  const std::optional<CUdeviceptr> place = packing_.take(size);
  if (!place) return nullptr;
  Range& arena = std::prev(ranges_.upper_bound(*place))->second;
  blocks_.insert_or_assign(*place, Block{size, &arena});
  *address = *place;
  return &arena;
}

Block* AddressSpace::block(CUdeviceptr address) {
  const auto found = blocks_.find(address);
  return found == blocks_.end() ? nullptr : &found->second;
}

std::optional<AddressRange> AddressSpace::find(CUdeviceptr address) const {
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return std::nullopt;
  const auto& [base, block] = *std::prev(after);
  if (block.dying || address - base >= block.size.count) return std::nullopt;
  return AddressRange{base, block.size};
}

Range* AddressSpace::find_whole(CUdeviceptr address, Bytes size) const {
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return nullptr;
  const auto& [base, block] = *std::prev(after);
  return !block.dying && lies_within(address, size, base, block.size) ? block.range : nullptr;
}

bool AddressSpace::condemn(CUdeviceptr address) {
  Block* const found = block(address);
  return found != nullptr && !std::exchange(found->dying, true);
}

bool AddressSpace::take_out(CUdeviceptr address) {
  const auto found = blocks_.find(address);
  const Range& range = *found->second.range;
  blocks_.erase(found);
  if (!range.arena) return true;
  packing_.give(address);
  if (!packing_.is_empty(range.base)) return false;
  packing_.remove_region(range.base);
  return true;
}

// Undoes a take_out() that returned true. If the range is an arena, the block stays removed, but new blocks
// can be placed in the arena again.
void AddressSpace::put_back(CUdeviceptr address, const Block& block) {
  if (block.range->arena)
    packing_.add_region(block.range->base, block.range->size);
  else
    blocks_.emplace(address, block);
}

void AddressSpace::put_back(Taken taken) {
  blocks_.insert(std::move(taken.block));
  ranges_.insert(std::move(taken.range));
}

}  // namespace sharedgpu
