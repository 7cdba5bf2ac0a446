// SPDX-License-Identifier: Apache-2.0
// What others know the physical place of (another process, a network card) stays there until it is freed.
#include <algorithm>
#include <utility>

#include "interposer/memory/swap_memory.h"

namespace sharedgpu {

// The arbiter's leave is for room that is promised anew: what was swappable becomes pinned in the moment in
// which it is granted. Until then the handles are both, and stay.
CUresult SwapMemory::settle(CUdeviceptr address, Bytes size) {
  const std::lock_guard one_at_a_time(growth_);
  {
    std::unique_lock lock(mutex_);
    std::vector<Handle*> handles;
    switch (handles_to_settle(lock, address, size, handles)) {
      case Found::none:
        return CUDA_ERROR_INVALID_VALUE;
      case Found::missing:
        return CUDA_ERROR_NOT_READY;
      case Found::all:
        break;
    }
    if (handles.empty()) return CUDA_SUCCESS;
    for (Handle* handle : handles) set_place(*handle, Handle::Place::settling);
  }
  const bool granted = books_.grow().granted;
  {
    const std::lock_guard lock(mutex_);
    // Those that were freed meanwhile are not among them.
    for (auto& [base, range] : ranges_)
      for (Handle& handle : range.handles)
        if (handle.place == Handle::Place::settling) {
          set_place(handle, granted ? Handle::Place::settled : Handle::Place::free);
          if (granted && !handle.busy && handle.has_copy()) drop_copy(handle);  // it never leaves
        }
    settled_.notify_all();
  }
  // Refused, it is as swappable as before; the arbiter may have reckoned otherwise meanwhile, and believes in
  // growth only where it is asked.
  if (!granted) static_cast<void>(books_.grow());
  books_.report(false);
  return granted ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// The handles under the range that may still leave.
SwapMemory::Found SwapMemory::handles_to_settle(std::unique_lock<std::mutex>& lock, CUdeviceptr address,
                                                Bytes size, std::vector<Handle*>& found) {
  for (;;) {
    const auto [range, begin] = range_under(address, size);
    if (range == nullptr) return Found::none;
    found.clear();
    bool busy = false;
    bool missing = false;
    for (Handle& handle : range->handles) {
      if (handle.address >= begin + size.count || handle.address + handle.size.count <= begin) continue;
      if (handle.place == Handle::Place::settled) continue;
      busy |= handle.busy;
      missing |= !handle.busy && !handle.usable();
      found.push_back(&handle);
    }
    if (!busy) return missing ? Found::missing : Found::all;
    settled_.wait(lock);
  }
}

// That of the block, or of what the program made, that the addresses lie in. What the program made has its
// own name as an address, and those where it is mapped.
SwapMemory::Under SwapMemory::range_under(CUdeviceptr address, Bytes size) {
  const auto within = [=](CUdeviceptr base, Bytes whole) {
    return address - base < whole.count && size <= Bytes{whole.count - (address - base)};
  };
  const auto block = blocks_.upper_bound(address);
  if (block != blocks_.begin()) {
    const auto& [base, found] = *std::prev(block);
    if (!found.dying && within(base, found.size)) return {found.range, address};
  }
  const auto mapping = mapping_at(address);
  if (mapping != mappings_.end()) {
    Range* const range = made_.find(mapping->second)->second.range;
    if (!within(mapping->first, range->size)) return {};
    return {range, range->base + (address - mapping->first)};
  }
  const auto made = made_.upper_bound(address);
  if (made == made_.begin()) return {};
  const auto& [base, found] = *std::prev(made);
  return within(base, found.range->size) ? Under{found.range, address} : Under{};
}

void SwapMemory::set_place(Handle& handle, Handle::Place place) {
  if (handle.place == place) return;
  if (!handle.busy) order_.remove(handle);
  const Handle::Place before = std::exchange(handle.place, place);
  if (before == Handle::Place::free) pinned_ += handle.size;
  if (place == Handle::Place::free) pinned_ -= handle.size;
  if (before == Handle::Place::settling) settling_ -= handle.size;
  if (place == Handle::Place::settling) settling_ += handle.size;
  if (place == Handle::Place::settled) {
    swappable_ -= handle.size;
    resident_ -= handle.size;
    handle.counted = false;
  }
  if (before == Handle::Place::settled) swappable_ += handle.size;
  if (!handle.busy) order_.insert(handle);
}

// Busy meanwhile, so that nobody unmaps it.
CUresult SwapMemory::export_piece(CUdeviceptr base, unsigned index, Piece* piece) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto block = blocks_.find(base);
    if (block == blocks_.end() || block->second.dying) return CUDA_ERROR_INVALID_VALUE;
    Range& range = *block->second.range;
    if (index >= range.handles.size()) return CUDA_ERROR_INVALID_VALUE;
    Handle& handle = range.handles[index];
    if (handle.busy) {
      settled_.wait(lock);
      continue;
    }
    if (handle.place != Handle::Place::settled) return CUDA_ERROR_INVALID_VALUE;
    claim(handle);
    lock.unlock();
    const CUresult result = device_.export_memory(handle.address, &piece->descriptor);
    lock.lock();
    piece->size = handle.size;
    piece->offset = {base - range.base};
    piece->total = range.size;
    piece->count = static_cast<unsigned>(range.handles.size());
    unclaim(handle);
    return result;
  }
}

}  // namespace sharedgpu
