// SPDX-License-Identifier: Apache-2.0
// Freeing, including deferred frees. A free is deferred if a capture forbids waiting, if another process has
// imported the memory, or if the driver would wait where the program does not.
#include <algorithm>
#include <iterator>
#include <utility>

#include "interposer/memory/swap_memory.h"

namespace sharedgpu {

// A block whose free is deferred is still ours; the driver must not see its address, which it may know as its
// own.
std::optional<CUresult> SwapMemory::free(CUdeviceptr address, Gpu gpu) {
  if (condemn(address)) return free_condemned(address, gpu);
  const MutexLock lock(mutex_);
  return space_.block(address) != nullptr ? std::optional(CUDA_ERROR_INVALID_VALUE) : std::nullopt;
}

bool SwapMemory::condemn(CUdeviceptr address) {
  const MutexLock lock(mutex_);
  return space_.condemn(address);
}

void SwapMemory::reprieve(CUdeviceptr address) {
  const MutexLock lock(mutex_);
  space_.reprieve(address);
}

CUresult SwapMemory::free_condemned(CUdeviceptr address, Gpu gpu) {
  const bool lent = books_.still_lent(address);
  const bool would_wait = gpu == Gpu::drained && device_.unreserve_waits();
  if (!lent && !would_wait && !books_.capturing()) {
    const CUresult result = free_block(address, gpu);
    if (result == CUDA_SUCCESS) return result;
    if (result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {  // otherwise a capture has just begun
      reprieve(address);
      return result;
    }
  }
  const MutexLock lock(mutex_);
  const Block& block = *space_.block(address);
  const Bytes gain = block.range->arena ? block.size : block.range->size;
  deferred_.add(address, block.range->context, lent ? Bytes{} : gain);
  return CUDA_SUCCESS;
}

// Frees a block that is marked as being freed. On failure it stays marked.
CUresult SwapMemory::free_block(CUdeviceptr address, Gpu gpu) {
  MutexLock lock(mutex_);
  const Block block = *space_.block(address);
  Range& range = *block.range;
  const bool on_gpu = std::any_of(range.handles.begin(), range.handles.end(), [](const Handle& h) {
    return h.counted || h.place != Handle::Place::free;
  });
  if (on_gpu && gpu == Gpu::may_run) {
    lock.unlock();
    if (const CUresult result = device_.synchronize(); result != CUDA_SUCCESS) return result;
    lock.lock();
  }
  // The block is taken out before its addresses are released, since another thread may get them at once.
  if (!space_.take_out(address)) return CUDA_SUCCESS;
  const bool arena = range.arena;
  lock.unlock();
  const CUresult result = take_down(range);
  if (result == CUDA_SUCCESS) return result;
  lock.lock();
  space_.put_back(address, block);  // the driver refused to free it
  return arena ? CUDA_SUCCESS : result;
}

bool SwapMemory::defers() const {
  const MutexLock lock(mutex_);
  return !deferred_.empty();
}

Bytes SwapMemory::due() const {
  const MutexLock lock(mutex_);
  return deferred_.due();
}

// Carries out the frees that were deferred before this call. It waits for the GPU, or queries it, before it
// takes any entry: GPU work may be waiting for a thread that destroys a context, and that thread waits for
// the context's taken entries.
void SwapMemory::free_deferred(Gpu gpu) {
  std::uint64_t last = 0;
  {
    const MutexLock lock(mutex_);
    if (deferred_.empty()) return;
    last = deferred_.last();
  }
  if (books_.capturing()) return;
  if (gpu == Gpu::may_run && device_.synchronize() != CUDA_SUCCESS) return;
  if (gpu == Gpu::may_be_idle && !books_.idle()) return;
  std::vector<DeferredFrees::Entry> due;
  {
    const MutexLock lock(mutex_);
    due = deferred_.take(last);
  }
  for (const DeferredFrees::Entry& each : due) {
    const bool freed =
        !books_.still_lent(each.address) && free_block(each.address, Gpu::drained) == CUDA_SUCCESS;
    const MutexLock lock(mutex_);
    deferred_.done(each, freed);
    settled_.notify_all();
  }
}

// The memory belongs to us and not to the context: it exists until we free it. The blocks are marked before
// the destruction, since the address of a block freed meanwhile might be reused by another thread.
CUresult SwapMemory::free_with(Destruction& destruction, const std::vector<CUdeviceptr>& blocks) {
  std::vector<CUdeviceptr> condemned;
  std::ranges::copy_if(blocks, std::back_inserter(condemned),
                       [&](CUdeviceptr block) { return condemn(block); });
  const CUresult result = destruction.carry_out();
  for (const CUdeviceptr address : condemned) {
    if (result == CUDA_SUCCESS)
      free_condemned(address, Gpu::drained);  // the work that used it has ended with the context
    else
      reprieve(address);
  }
  return result;
}

// The blocks are taken out of the maps first, since their addresses may be reused as soon as the context is
// destroyed.
CUresult SwapMemory::lose_with(Destruction& destruction, const std::vector<CUdeviceptr>& addresses) {
  std::vector<AddressSpace::Taken> taken;
  MutexLock lock(mutex_);
  while (deferred_.any_taken(destruction.context())) settled_.wait(mutex_);
  const std::vector<DeferredFrees::Entry> deferred = deferred_.take_out(destruction.context());
  for (const CUdeviceptr address : addresses) {
    const Block* const block = space_.block(address);
    if (block == nullptr || block->dying) continue;
    taken.push_back(space_.take_whole(address));
    claim_all(taken.back().range.mapped());
  }
  for (const DeferredFrees::Entry& each : deferred) {
    taken.push_back(space_.take_whole(each.address));
    claim_all(taken.back().range.mapped());
  }
  lock.unlock();
  const CUresult result = destruction.carry_out();
  lock.lock();
  for (AddressSpace::Taken& each : taken) {
    Range& range = each.range.mapped();
    for (Handle& handle : range.handles) {
      if (result == CUDA_SUCCESS) {
        mover_->unback(handle);
        mover_->forget(handle);
      }
      unclaim(handle);
    }
    if (result == CUDA_SUCCESS)
      residency_.strike_off(range);
    else
      space_.put_back(std::move(each));
  }
  if (result != CUDA_SUCCESS) deferred_.put_back(deferred);
  lock.unlock();
  books_.report(false);
  return result;
}

}  // namespace sharedgpu
