// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/host_pool.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "interposer/memory/host_pages.h"

namespace sharedgpu {

HostPool::HostPool(Device& device, const HostBudget& budget, Bytes granule)
    : device_(device), budget_(budget), granule_(granule) {}

HostPool::~HostPool() {
  for (const auto& [data, slab] : slabs_) {
    if (device_.unpin_host(data) == CUDA_SUCCESS) unmap_pages(data, size_of(slab));
  }
}

std::optional<HostRoom> HostPool::take(Bytes size) {
  while (minus(held(), used()) < size) {
    if (!grow(size - minus(held(), used()))) return std::nullopt;
  }
  HostRoom room;
  std::uint64_t missing = size.count / granule_.count;
  const std::lock_guard lock(mutex_);
  while (missing > 0) {
    std::byte* const data = *open_.begin();
    Slab& slab = slabs_.find(data)->second;
    const unsigned first = static_cast<unsigned>(std::countr_zero(slab.free));
    const unsigned run = static_cast<unsigned>(std::countr_one(slab.free >> first));
    const unsigned count = static_cast<unsigned>(std::min<std::uint64_t>(run, missing));
    slab.free &= ~(all_free(count) << first);
    if (slab.free == 0) open_.erase(data);
    room.push_back({data + first * granule_.count, {count * granule_.count}});
    missing -= count;
  }
  used_ += size.count;
  return room;
}

void HostPool::give(const HostRoom& room) {
  const std::lock_guard lock(mutex_);
  for (const HostPiece& piece : room) {
    const auto owner = std::prev(slabs_.upper_bound(piece.data));
    const std::uint64_t first = static_cast<std::uint64_t>(piece.data - owner->first) / granule_.count;
    const auto count = static_cast<unsigned>(piece.size.count / granule_.count);
    owner->second.free |= all_free(count) << first;
    open_.insert(owner->first);
    used_ -= piece.size.count;
  }
}

// One slab: a whole one, or as much as is missing where the budget has no more.
bool HostPool::grow(Bytes missing) {
  Bytes size{kGranulesPerSlab * granule_.count};
  const Bytes room = budget_.room();
  if (room < size) size = std::min(size, missing);
  if (room < size) return false;
  std::byte* const data = map_touched_pages(size);
  if (data == nullptr) return false;
  if (device_.pin_host(data, size) != CUDA_SUCCESS) {
    unmap_pages(data, size);
    return false;
  }
  const auto granules = static_cast<unsigned>(size.count / granule_.count);
  const std::lock_guard lock(mutex_);
  slabs_.emplace(data, Slab{granules, all_free(granules)});
  open_.insert(data);
  held_ += size.count;
  return true;
}

void HostPool::trim(Bytes keep) {
  std::unique_lock lock(mutex_);
  for (auto next = slabs_.end(); next != slabs_.begin();) {
    const auto slab = std::prev(next);
    const Bytes size = size_of(slab->second);
    if (slab->second.free != all_free(slab->second.granules) || held() < keep + size) {
      next = slab;
      continue;
    }
    std::byte* const data = slab->first;
    const Slab shape = slab->second;
    open_.erase(data);
    next = slabs_.erase(slab);
    held_ -= size.count;
    lock.unlock();
    // What is still registered must not be unmapped: the driver would take the next mapping there for it.
    const bool gone = device_.unpin_host(data) == CUDA_SUCCESS;
    if (gone) unmap_pages(data, size);
    lock.lock();
    if (!gone) {
      slabs_.emplace(data, shape);
      open_.insert(data);
      held_ += size.count;
      return;
    }
    next = slabs_.upper_bound(data);
  }
}

}  // namespace sharedgpu
