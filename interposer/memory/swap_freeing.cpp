// SPDX-License-Identifier: Apache-2.0
// Freeing, and what is to be freed later: what a capture forbids to wait for, what others have borrowed, and
// what the driver would wait for where the program does not.
#include <algorithm>
#include <iterator>
#include <utility>

#include "interposer/memory/swap_memory.h"

namespace sharedgpu {

// What is to be freed later is ours still, whose addresses the driver may know as its own.
std::optional<CUresult> SwapMemory::free(CUdeviceptr address, Gpu gpu) {
  if (condemn(address)) return free_condemned(address, gpu);
  const std::lock_guard lock(mutex_);
  return blocks_.contains(address) ? std::optional(CUDA_ERROR_INVALID_VALUE) : std::nullopt;
}

// From now on nobody else frees it, or finds it.
bool SwapMemory::condemn(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(address);
  if (block == blocks_.end() || block->second.dying) return false;
  block->second.dying = true;
  return true;
}

void SwapMemory::reprieve(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  blocks_.find(address)->second.dying = false;
}

CUresult SwapMemory::free_condemned(CUdeviceptr address, Gpu gpu) {
  const bool lent = books_.still_lent(address);
  const bool would_wait = gpu == Gpu::drained && device_.unreserve_waits();
  if (!lent && !would_wait && !books_.capturing()) {
    const CUresult result = free_block(address, gpu);
    if (result == CUDA_SUCCESS) return result;
    if (result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {  // else a capture has just begun
      reprieve(address);
      return result;
    }
  }
  const std::lock_guard lock(mutex_);
  const Block& block = blocks_.find(address)->second;
  const Bytes gain = block.range->arena ? block.size : block.range->size;
  deferred_.push_back({.address = address,
                       .context = block.range->context,
                       .number = ++deferrals_,
                       .due = lent ? Bytes{} : gain});
  return CUDA_SUCCESS;
}

// Of a dying block, which it remains on failure.
CUresult SwapMemory::free_block(CUdeviceptr address, Gpu gpu) {
  std::unique_lock lock(mutex_);
  const auto block = blocks_.find(address);
  Range& range = *block->second.range;
  const bool on_gpu = std::any_of(range.handles.begin(), range.handles.end(), [](const Handle& h) {
    return h.counted || h.place != Handle::Place::free;
  });
  if (on_gpu && gpu == Gpu::may_run) {
    lock.unlock();
    if (const CUresult result = device_.synchronize(); result != CUDA_SUCCESS) return result;
    lock.lock();
  }
  // Before its addresses are given back: another thread may be given them at once.
  const Block its = block->second;
  blocks_.erase(block);
  if (range.arena) {
    packing_.give(address);
    if (!packing_.is_empty(range.base)) return CUDA_SUCCESS;
    packing_.remove_region(range.base);
    lock.unlock();
    if (take_down(range) == CUDA_SUCCESS) return CUDA_SUCCESS;
    lock.lock();
    packing_.add_region(range.base, range.size);  // the driver would not have it: it serves on
    return CUDA_SUCCESS;
  }
  lock.unlock();
  const CUresult result = take_down(range);
  if (result == CUDA_SUCCESS) return result;
  lock.lock();
  blocks_.emplace(address, its);
  return result;
}

bool SwapMemory::defers() const {
  const std::lock_guard lock(mutex_);
  return !deferred_.empty();
}

Bytes SwapMemory::due() const {
  const std::lock_guard lock(mutex_);
  Bytes sum;
  for (const Deferred& each : deferred_) sum += each.due;
  return sum;
}

// Those that were there when it begins. What the GPU has to do is waited for, or asked about, before any is
// taken: work may wait for a thread that destroys a context, and that one waits for what is taken of it.
void SwapMemory::free_deferred(Gpu gpu) {
  std::uint64_t last = 0;
  {
    const std::lock_guard lock(mutex_);
    if (deferred_.empty()) return;
    last = deferrals_;
  }
  if (books_.capturing()) return;
  if (gpu == Gpu::may_run && device_.synchronize() != CUDA_SUCCESS) return;
  if (gpu == Gpu::may_be_idle && !books_.idle()) return;
  std::vector<Deferred> due;
  {
    const std::lock_guard lock(mutex_);
    for (Deferred& each : deferred_)
      if (each.number <= last && !std::exchange(each.taken, true)) due.push_back(each);
  }
  for (const Deferred& each : due) {
    const bool freed =
        !books_.still_lent(each.address) && free_block(each.address, Gpu::drained) == CUDA_SUCCESS;
    const std::lock_guard lock(mutex_);
    const auto its = std::ranges::find(deferred_, each.number, &Deferred::number);
    if (freed)
      deferred_.erase(its);
    else
      its->taken = false;
    settled_.notify_all();
  }
}

// Of memory that goes with this context. With mutex_ held: waits for whoever is freeing some of it.
std::vector<SwapMemory::Deferred> SwapMemory::take_deferred(std::unique_lock<std::mutex>& lock,
                                                            CUcontext context) {
  const auto is_its = [=](const Deferred& each) { return each.context == context; };
  settled_.wait(lock, [&] {
    return std::ranges::none_of(deferred_, [&](const Deferred& each) { return is_its(each) && each.taken; });
  });
  std::vector<Deferred> its;
  std::ranges::copy_if(deferred_, std::back_inserter(its), is_its);
  std::erase_if(deferred_, is_its);
  return its;
}

// The memory is ours and not the context's: it is there until we free it. But by then another thread's might
// be at the address of what was freed meanwhile.
CUresult SwapMemory::free_with(Destruction& destruction, const std::vector<CUdeviceptr>& blocks) {
  std::vector<CUdeviceptr> condemned;
  std::ranges::copy_if(blocks, std::back_inserter(condemned),
                       [&](CUdeviceptr block) { return condemn(block); });
  const CUresult result = destruction.carry_out();
  for (const CUdeviceptr address : condemned) {
    if (result == CUDA_SUCCESS)
      free_condemned(address, Gpu::drained);  // what used it has ended with the context
    else
      reprieve(address);
  }
  return result;
}

// Taken out of the maps first: the addresses may be given out again as soon as the context is gone.
CUresult SwapMemory::lose_with(Destruction& destruction, const std::vector<CUdeviceptr>& addresses) {
  std::vector<Blocks::node_type> blocks;
  std::vector<Ranges::node_type> ranges;
  std::unique_lock lock(mutex_);
  const std::vector<Deferred> deferred = take_deferred(lock, destruction.context());
  const auto take = [&](CUdeviceptr address) {
    blocks.push_back(blocks_.extract(address));
    ranges.push_back(ranges_.extract(address));
    claim_all(lock, ranges.back().mapped());
  };
  for (const CUdeviceptr address : addresses) {
    const auto block = blocks_.find(address);
    if (block != blocks_.end() && !block->second.dying) take(address);
  }
  for (const Deferred& each : deferred) take(each.address);
  lock.unlock();
  const CUresult result = destruction.carry_out();
  lock.lock();
  for (auto& range : ranges) {
    for (Handle& handle : range.mapped().handles) {
      if (result == CUDA_SUCCESS) {
        mover_->unback(handle);
        mover_->forget(handle);
      }
      unclaim(handle);
    }
    if (result == CUDA_SUCCESS)
      strike_off(range.mapped());
    else
      ranges_.insert(std::move(range));
  }
  if (result != CUDA_SUCCESS) {
    for (auto& block : blocks) blocks_.insert(std::move(block));
    deferred_.insert(deferred_.end(), deferred.begin(), deferred.end());
  }
  lock.unlock();
  books_.report(false);
  return result;
}

}  // namespace sharedgpu
