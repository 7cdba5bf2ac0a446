// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/swap_freeing.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sharedgpu {

// A block whose free is deferred still belongs to the interposer. If the program frees such a block again,
// the interposer itself returns the error. The interposer must not pass this call to the driver, which would
// free managed memory at once.
std::optional<CUresult> SwapFreeing::free(CUdeviceptr address, Gpu gpu) {
  if (condemn(address)) return free_condemned(address, gpu);
  const MutexLock lock(common_.mutex);
  return common_.space.block(address) != nullptr ? std::optional(CUDA_ERROR_INVALID_VALUE) : std::nullopt;
}

bool SwapFreeing::condemn(CUdeviceptr address) {
  const MutexLock lock(common_.mutex);
  return common_.space.condemn(address);
}

void SwapFreeing::reprieve(CUdeviceptr address) {
  const MutexLock lock(common_.mutex);
  common_.space.reprieve(address);
}

CUresult SwapFreeing::free_condemned(CUdeviceptr address, Gpu gpu) {
  const bool lent = common_.books.still_lent(address);
  const bool would_wait = gpu == Gpu::drained && common_.device.unreserve_waits();
  if (!lent && !would_wait && !common_.books.capturing()) {
    const CUresult result = free_block(address, gpu);
    if (result == CUDA_SUCCESS) return result;
    if (result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {  // otherwise a capture has just begun, so the free
                                                            // is deferred
      reprieve(address);
      return result;
    }
  }
  const MutexLock lock(common_.mutex);
  const Block& block = *common_.space.block(address);
  const Bytes gain = block.range->arena ? block.size : block.range->size;
  deferred_.add(address, block.range->context, lent ? Bytes{} : gain);
  return CUDA_SUCCESS;
}

// Frees a block that condemn() has marked as being freed. On failure the block stays marked.
CUresult SwapFreeing::free_block(CUdeviceptr address, Gpu gpu) {
  MutexLock lock(common_.mutex);
  const Block block = *common_.space.block(address);
  Range& range = *block.range;
  const bool on_gpu = std::any_of(range.handles.begin(), range.handles.end(), [](const Handle& h) {
    return h.counted || h.away || h.place != Handle::Place::free;
  });
  if (on_gpu && gpu == Gpu::may_run) {
    lock.unlock();
    if (const CUresult result = common_.device.synchronize(); result != CUDA_SUCCESS) return result;
    lock.lock();
  }
  // Removes the block from the address space before its addresses are released, since another thread may get
  // the same addresses at once.
  common_.landmarks.forget(address, block.size);
  if (!common_.space.take_out(address)) return CUDA_SUCCESS;
  const bool arena = range.arena;
  lock.unlock();
  const CUresult result = ranges_.take_down(range);
  if (result == CUDA_SUCCESS) return result;
  lock.lock();
  common_.space.put_back(address, block);  // the driver has refused to free this block
  return arena ? CUDA_SUCCESS : result;
}

bool SwapFreeing::defers() const {
  const MutexLock lock(common_.mutex);
  return !deferred_.empty();
}

Bytes SwapFreeing::due() const {
  const MutexLock lock(common_.mutex);
  return deferred_.due();
}

// Carries out the frees that were deferred before this call. Waits for the GPU, or queries it, before it
// takes any entry. Otherwise there could be a deadlock: GPU work may be waiting for a thread that destroys a
// context, and that thread waits until no entry of the context is taken.
void SwapFreeing::free_deferred(Gpu gpu) {
  std::uint64_t last = 0;
  {
    const MutexLock lock(common_.mutex);
    if (deferred_.empty()) return;
    last = deferred_.last();
  }
  if (common_.books.capturing()) return;
  if (gpu == Gpu::may_run && common_.device.synchronize() != CUDA_SUCCESS) return;
  if (gpu == Gpu::may_be_idle && !common_.books.idle()) return;
  std::vector<DeferredFrees::Entry> due;
  {
    const MutexLock lock(common_.mutex);
    due = deferred_.take(last);
  }
  for (const DeferredFrees::Entry& each : due) {
    const bool freed =
        !common_.books.still_lent(each.address) && free_block(each.address, Gpu::drained) == CUDA_SUCCESS;
    const MutexLock lock(common_.mutex);
    deferred_.done(each, freed);
    common_.changed.notify_all();
  }
}

// Carries out the destruction of the context, and then frees the blocks, since the driver does not free their
// memory with the context. The blocks are marked as being freed before the destruction. Otherwise another
// thread could free one of the blocks during the destruction and get a new block at the same address.
CUresult SwapFreeing::free_with(Destruction& destruction, const std::vector<CUdeviceptr>& blocks) {
  std::vector<CUdeviceptr> condemned;
  std::ranges::copy_if(blocks, std::back_inserter(condemned),
                       [&](CUdeviceptr block) { return condemn(block); });
  const CUresult result = destruction.carry_out();
  for (const CUdeviceptr address : condemned) {
    if (result == CUDA_SUCCESS)
      free_condemned(address, Gpu::drained);  // the work that used the memory has ended with the context
    else
      reprieve(address);
  }
  return result;
}

// Removes the blocks from the address space before the destruction, since another thread may get their
// addresses as soon as the context is destroyed.
CUresult SwapFreeing::lose_with(Destruction& destruction, const std::vector<CUdeviceptr>& addresses) {
  std::vector<AddressSpace::Taken> taken;
  MutexLock lock(common_.mutex);
  while (deferred_.any_taken(destruction.context())) common_.changed.wait(common_.mutex);
  const std::vector<DeferredFrees::Entry> deferred = deferred_.take_out(destruction.context());
  for (const CUdeviceptr address : addresses) {
    const Block* const block = common_.space.block(address);
    if (block == nullptr || block->dying) continue;
    taken.push_back(common_.space.take_whole(address));
    common_.claim_all(taken.back().range.mapped());
  }
  for (const DeferredFrees::Entry& each : deferred) {
    taken.push_back(common_.space.take_whole(each.address));
    common_.claim_all(taken.back().range.mapped());
  }
  lock.unlock();
  const CUresult result = destruction.carry_out();
  lock.lock();
  for (AddressSpace::Taken& each : taken) {
    Range& range = each.range.mapped();
    for (Handle& handle : range.handles) {
      if (result == CUDA_SUCCESS) {
        common_.mover->unback(handle);
        common_.mover->forget(handle);
      }
      common_.unclaim(handle);
    }
    if (result == CUDA_SUCCESS)
      common_.residency.strike_off(range);
    else
      common_.space.put_back(std::move(each));
  }
  if (result != CUDA_SUCCESS) deferred_.put_back(deferred);
  lock.unlock();
  common_.books.report(false);
  return result;
}

}  // namespace sharedgpu
