// SPDX-License-Identifier: Apache-2.0
// Pinning in place: memory whose physical location is known to another process or a network card stays there
// until it is freed.
#include <algorithm>
#include <utility>

#include "interposer/memory/swap_memory.h"

namespace sharedgpu {

// The arbiter is asked for additional pinned room; when it is granted, the swappable bytes become pinned.
// Until then the handles count as both, and are not evicted.
CUresult SwapMemory::settle(CUdeviceptr address, Bytes size) {
  const std::lock_guard one_at_a_time(growth_);
  {
    MutexLock lock(mutex_);
    Handles handles;
    switch (handles_to_settle(address, size, handles)) {
      case Found::none:
        return CUDA_ERROR_INVALID_VALUE;
      case Found::missing:
        return CUDA_ERROR_NOT_READY;
      case Found::all:
        break;
    }
    if (handles.empty()) return CUDA_SUCCESS;
    for (Handle* handle : handles) residency_.set_place(*handle, Handle::Place::settling);
  }
  const bool granted = books_.grow().granted;
  {
    const MutexLock lock(mutex_);
    // Handles freed meanwhile are not found here.
    for (auto& [base, range] : space_.ranges())
      for (Handle& handle : range.handles)
        if (handle.place == Handle::Place::settling) {
          residency_.set_place(handle, granted ? Handle::Place::settled : Handle::Place::free);
          if (granted && !handle.busy && handle.has_copy()) drop_copy(handle);  // it is never evicted
        }
    settled_.notify_all();
  }
  // After a refusal the memory is swappable again. The arbiter may have counted it otherwise meanwhile, and
  // accepts growth only by a request.
  if (!granted) static_cast<void>(books_.grow());
  books_.report(false);
  return granted ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// Finds the handles under the range that can still be evicted.
SwapMemory::Found SwapMemory::handles_to_settle(CUdeviceptr address, Bytes size, Handles& found) {
  for (;;) {
    const auto block = space_.find_whole(address, size);
    const auto [range, begin] =
        block != nullptr ? ProgramAllocations::Under{block, address} : program_.under(address, size);
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
    settled_.wait(mutex_);
  }
}

// The handle is busy meanwhile, so that no thread unmaps it.
CUresult SwapMemory::export_piece(CUdeviceptr base, unsigned index, Piece* piece) {
  MutexLock lock(mutex_);
  for (;;) {
    const Block* const block = space_.block(base);
    if (block == nullptr || block->dying) return CUDA_ERROR_INVALID_VALUE;
    const Range& range = *block->range;
    if (index >= range.handles.size()) return CUDA_ERROR_INVALID_VALUE;
    Handle& handle = block->range->handles[index];
    if (handle.busy) {
      settled_.wait(mutex_);
      continue;
    }
    if (handle.place != Handle::Place::settled) return CUDA_ERROR_INVALID_VALUE;
    residency_.claim(handle);
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
