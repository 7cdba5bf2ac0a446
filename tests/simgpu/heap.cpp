// SPDX-License-Identifier: Apache-2.0
#include "tests/simgpu/heap.h"

#include "tests/simgpu/errors.h"

namespace sharedgpu::simgpu {
namespace {

constexpr Bytes kAlignment{512};
constexpr Bytes kSmall = mebibytes(1);  // up to here allocations share physical memory

}  // namespace

void Heap::clear() {
  while (!allocations_.empty()) free(allocations_.begin()->first);
}

Address Heap::take_from_device(Bytes size) {
  PhysicalPtr physical = store_.create(size);
  Address begin = space_.reserve(size, kGranule, 0);
  space_.map(begin, size, physical, true);
  space_.set_access(begin, size, Access::read_write, physical->device());
  for (const auto& [device, access] : others_) space_.set_access(begin, size, access, device);
  reserved_ += size;
  return begin;
}

void Heap::give_to_device(Address begin, Bytes size) {
  space_.unmap(begin, size);
  space_.free_reservation(begin, size);
  reserved_ -= size;
}

// The first gap of `block` that holds `size` bytes.
std::optional<Address> Heap::fit(Address begin, const Block& block, Bytes size) const {
  std::uint64_t at = 0;
  for (const auto& [offset, taken] : block.parts) {
    if (offset - at >= size.count) break;
    at = offset + taken.count;
  }
  if (at + size.count > kGranule.count) return std::nullopt;
  return begin + at;
}

Address Heap::allocate(Bytes size) {
  require(size.count > 0, CUDA_ERROR_INVALID_VALUE);
  std::lock_guard lock(mutex_);
  if (size > kSmall) {
    require(size.count < (1ull << 46), CUDA_ERROR_OUT_OF_MEMORY);
    Address begin = take_from_device(round_up(size, kGranule));
    allocations_[begin] = size;
    return begin;
  }
  Bytes rounded = round_up(size, kAlignment);
  for (auto& [begin, block] : blocks_) {
    auto place = fit(begin, block, rounded);
    if (!place) continue;
    block.parts[*place - begin] = rounded;
    allocations_[*place] = size;
    return *place;
  }
  Address begin = take_from_device(kGranule);
  blocks_[begin].parts[0] = rounded;
  allocations_[begin] = size;
  return begin;
}

bool Heap::free(Address begin) {
  std::lock_guard lock(mutex_);
  auto found = allocations_.find(begin);
  if (found == allocations_.end()) return false;
  Bytes size = found->second;
  allocations_.erase(found);
  if (size > kSmall) {
    give_to_device(begin, round_up(size, kGranule));
    return true;
  }
  auto block = std::prev(blocks_.upper_bound(begin));
  block->second.parts.erase(begin - block->first);
  if (block->second.parts.empty()) {
    Address start = block->first;
    blocks_.erase(block);
    give_to_device(start, kGranule);
  }
  return true;
}

std::optional<Range> Heap::find(Address at) const {
  std::lock_guard lock(mutex_);
  auto next = allocations_.upper_bound(at);
  if (next == allocations_.begin()) return std::nullopt;
  auto found = std::prev(next);
  if (at - found->first >= found->second.count) return std::nullopt;
  return Range{found->first, found->second};
}

void Heap::set_access(int device, Access access) {
  std::lock_guard lock(mutex_);
  others_[device] = access;
  for (const auto& [begin, size] : allocations_)
    if (size > kSmall) space_.set_access(begin, round_up(size, kGranule), access, device);
  for (const auto& [begin, block] : blocks_) space_.set_access(begin, kGranule, access, device);
}

Bytes Heap::used() const {
  std::lock_guard lock(mutex_);
  Bytes sum;
  for (const auto& [begin, size] : allocations_) sum += size;
  return sum;
}

Bytes Heap::reserved() const {
  std::lock_guard lock(mutex_);
  return reserved_;
}

}  // namespace sharedgpu::simgpu
