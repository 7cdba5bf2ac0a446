// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/swap_pinning.h"

#include <algorithm>
#include <utility>

namespace sharedgpu {

CUresult SwapPinning::pin(Bytes size) {
  return freeing_.make_room([&](Wish wish) {
    return growth_.request(Residency::Count::pinned, size, wish) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  });
}

void SwapPinning::pin_unasked(Bytes size) {
  {
    const MutexLock lock(common_.mutex);
    common_.residency.pin(size);
  }
  common_.books.claim();
}

// Asks the arbiter to count these bytes as pinned instead of swappable. Until the arbiter answers, the
// handles count both as swappable and as pinned, and are not evicted.
CUresult SwapPinning::settle(CUdeviceptr address, Bytes size) {
  const auto one_at_a_time = growth_.one_at_a_time();
  {
    const MutexLock lock(common_.mutex);
    std::vector<Handle*> handles;
    if (const CUresult result = handles_to_settle(address, size, handles); result != CUDA_SUCCESS)
      return result;
    if (handles.empty()) return CUDA_SUCCESS;
    for (Handle* handle : handles) common_.residency.set_place(*handle, Handle::Place::settling);
  }
  const bool granted = common_.books.grow().granted;
  {
    const MutexLock lock(common_.mutex);
    // Searches again, since handles may have been freed during the request.
    for (auto& [base, range] : common_.space.ranges())
      for (Handle& handle : range.handles)
        if (handle.place == Handle::Place::settling) {
          common_.residency.set_place(handle, granted ? Handle::Place::settled : Handle::Place::free);
          if (granted && !handle.busy && handle.has_copy())  // a pinned handle is never evicted, so it needs
                                                             // no clean copy
            common_.residency.change(handle, [&] { common_.mover->forget(handle); });
        }
    common_.changed.notify_all();
  }
  // After a refusal the memory counts only as swappable again. The arbiter may have subtracted the memory
  // from the swappable count, and this count may grow only on request. So the session requests this growth.
  if (!granted) static_cast<void>(common_.books.grow());
  common_.books.report(false);
  return granted ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult SwapPinning::handles_to_settle(CUdeviceptr address, Bytes size, std::vector<Handle*>& found) {
  for (;;) {
    const auto block = common_.space.find_whole(address, size);
    const auto [range, begin] =
        block != nullptr ? ProgramAllocations::Under{block, address} : common_.program.under(address, size);
    if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (range->must_merge()) return CUDA_ERROR_NOT_READY;
    found.clear();
    bool busy = false;
    bool missing = false;
    for (Handle& handle : range->handles) {
      if (handle.address >= begin + size.count || handle.address + handle.size.count <= begin) continue;
      if (handle.place == Handle::Place::settled) continue;
      busy |= handle.busy;
      missing |= !handle.busy && (!handle.usable() || handle.away);
      found.push_back(&handle);
    }
    if (!busy) return missing ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    common_.changed.wait(common_.mutex);
  }
}

std::optional<AddressRange> SwapPinning::to_merge(CUdeviceptr address) const {
  const MutexLock lock(common_.mutex);
  const Range* const range = common_.program.under(address, {1}).range;
  if (range == nullptr || !range->must_merge()) return std::nullopt;
  return AddressRange{range->base, range->size};
}

// The handle is busy during the export, so that no thread unmaps it.
CUresult SwapPinning::export_piece(CUdeviceptr base, unsigned index, Piece* piece) {
  MutexLock lock(common_.mutex);
  for (;;) {
    const Block* const block = common_.space.block(base);
    if (block == nullptr || block->dying) return CUDA_ERROR_INVALID_VALUE;
    const Range& range = *block->range;
    if (index >= range.handles.size()) return CUDA_ERROR_INVALID_VALUE;
    Handle& handle = block->range->handles[index];
    if (handle.busy) {
      common_.changed.wait(common_.mutex);
      continue;
    }
    if (handle.place != Handle::Place::settled) return CUDA_ERROR_INVALID_VALUE;
    common_.residency.claim(handle);
    lock.unlock();
    const CUresult result = common_.device.export_memory(handle.address, &piece->descriptor);
    lock.lock();
    piece->size = handle.size;
    piece->offset = {base - range.base};
    piece->total = range.size;
    piece->count = static_cast<unsigned>(range.handles.size());
    common_.unclaim(handle);
    return result;
  }
}

}  // namespace sharedgpu
