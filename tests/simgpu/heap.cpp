// SPDX-License-Identifier: Apache-2.0
#include "tests/simgpu/heap.h"

#include <algorithm>

#include "tests/simgpu/errors.h"

namespace sharedgpu::simgpu {
namespace {

constexpr Bytes kAlignment{512};
constexpr Bytes kSmall = mebibytes(1);  // allocations up to this size share physical memory

}  // namespace

void Heap::clear() {
  while (!allocations_.empty()) free(allocations_.begin()->first);
  trim({});
}

Address Heap::take_from_device(Bytes size) {
  PhysicalPtr physical = store_.create(size);
  Address begin = space_.reserve(size, kGranule, 0);
  space_.map(begin, size, physical, true);
  space_.set_access(begin, size, Access::read_write, physical->device());
  for (const auto& [device, access] : others_) space_.set_access(begin, size, access, device);
  reserved_ += size;
  reserved_high_ = std::max(reserved_high_, reserved_);
  return begin;
}

// Takes a kept block of exactly this size, or a new block from the device if there is none.
Address Heap::take_large(Bytes size) {
  const auto kept = std::ranges::find(kept_, size, &std::pair<const Address, Bytes>::second);
  return kept == kept_.end() ? take_from_device(size) : kept_.extract(kept).key();
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

void Heap::use(Address begin, Bytes size) {
  allocations_[begin] = size;
  used_ += size;
  used_high_ = std::max(used_high_, used_);
}

Address Heap::allocate(Bytes size) {
  require(size.count > 0, CUDA_ERROR_INVALID_VALUE);
  std::lock_guard lock(mutex_);
  if (size > kSmall) {
    require(size.count < (1ull << 46), CUDA_ERROR_OUT_OF_MEMORY);
    Address begin = take_large(round_up(size, kGranule));
    use(begin, size);
    return begin;
  }
  Bytes rounded = round_up(size, kAlignment);
  for (auto& [begin, block] : blocks_) {
    auto place = fit(begin, block, rounded);
    if (!place) continue;
    block.parts[*place - begin] = rounded;
    use(*place, size);
    return *place;
  }
  Address begin = take_from_device(kGranule);
  blocks_[begin].parts[0] = rounded;
  use(begin, size);
  return begin;
}

bool Heap::free(Address begin) {
  std::lock_guard lock(mutex_);
  auto found = allocations_.find(begin);
  if (found == allocations_.end()) return false;
  Bytes size = found->second;
  allocations_.erase(found);
  used_ -= size;
  if (size > kSmall) {
    kept_.emplace(begin, round_up(size, kGranule));
    trim_locked(threshold_);
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
  for (const auto& [begin, size] : kept_) space_.set_access(begin, size, access, device);
  for (const auto& [begin, block] : blocks_) space_.set_access(begin, kGranule, access, device);
}

Bytes Heap::used() const {
  std::lock_guard lock(mutex_);
  return used_;
}

Bytes Heap::reserved() const {
  std::lock_guard lock(mutex_);
  return reserved_;
}

Bytes Heap::used_high() const {
  std::lock_guard lock(mutex_);
  return used_high_;
}

Bytes Heap::reserved_high() const {
  std::lock_guard lock(mutex_);
  return reserved_high_;
}

void Heap::reset_used_high() {
  std::lock_guard lock(mutex_);
  used_high_ = used_;
}

void Heap::reset_reserved_high() {
  std::lock_guard lock(mutex_);
  reserved_high_ = reserved_;
}

void Heap::set_threshold(Bytes threshold) {
  std::lock_guard lock(mutex_);
  threshold_ = threshold;
}

Bytes Heap::threshold() const {
  std::lock_guard lock(mutex_);
  return threshold_;
}

void Heap::trim(Bytes keep) {
  std::lock_guard lock(mutex_);
  trim_locked(keep);
}

void Heap::trim_locked(Bytes keep) {
  while (!kept_.empty() && reserved_ > keep) {
    const auto [begin, size] = *kept_.begin();
    kept_.erase(kept_.begin());
    give_to_device(begin, size);
  }
}

}  // namespace sharedgpu::simgpu
