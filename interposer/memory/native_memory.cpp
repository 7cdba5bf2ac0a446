// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/native_memory.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace sharedgpu {

CUresult NativeMemory::allocate(CUdeviceptr* address, Bytes size) {
  if (size > kLargestAllocation || !take(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = CUDA_SUCCESS;
  Nanoseconds waited{};
  for (Nanoseconds pause = std::chrono::milliseconds(1);; pause = std::min(pause * 2, patience_ / 16)) {
    result = calls_.allocate(address, size.count);
    if (result != CUDA_ERROR_OUT_OF_MEMORY || waited >= patience_) break;
    std::this_thread::sleep_for(pause);
    waited += pause;
  }
  if (result != CUDA_SUCCESS) {
    give(size);
    return result;
  }
  const std::lock_guard lock(mutex_);
  blocks_[*address] = size;
  return CUDA_SUCCESS;
}

// Erases the block before the driver frees it, since another thread may get the same address at once.
std::optional<CUresult> NativeMemory::free(CUdeviceptr address) {
  std::map<CUdeviceptr, Bytes>::node_type block;
  {
    const std::lock_guard lock(mutex_);
    block = blocks_.extract(address);
  }
  if (block.empty()) return std::nullopt;
  const CUresult result = calls_.free(address);
  if (result == CUDA_SUCCESS) {
    give(block.mapped());
  } else {
    const std::lock_guard lock(mutex_);
    blocks_.insert(std::move(block));
  }
  return result;
}

// Like free(), erases the blocks before the driver frees them.
CUresult NativeMemory::free_with(Destruction& destruction, const std::vector<CUdeviceptr>& blocks) {
  std::map<CUdeviceptr, Bytes> going;
  Bytes size;
  {
    const std::lock_guard lock(mutex_);
    for (const CUdeviceptr address : blocks) {
      auto block = blocks_.extract(address);
      if (block.empty()) continue;
      size += block.mapped();
      going.insert(std::move(block));
    }
  }
  const CUresult result = destruction.carry_out();
  if (result == CUDA_SUCCESS) {
    give(size);
  } else {
    const std::lock_guard lock(mutex_);
    blocks_.merge(going);
  }
  return result;
}

// Counts the growth. Asks the arbiter only if the driver may have to allocate another piece of GPU memory.
bool NativeMemory::take(Bytes size) {
  const std::lock_guard one_at_a_time(growth_);
  {
    const std::lock_guard lock(mutex_);
    const Bytes before = counted(allocated_);
    allocated_ += size;
    if (counted(allocated_) == before) return true;
  }
  if (books_.grow().granted) return true;
  give(size);
  books_.refused({.size = size, .host_most = {}, .host_used = {}, .pinned = true});
  return false;
}

void NativeMemory::give(Bytes size) {
  {
    const std::lock_guard lock(mutex_);
    const Bytes before = counted(allocated_);
    allocated_ = minus(allocated_, size);
    if (counted(allocated_) == before) return;
  }
  books_.report(false);
}

CUresult NativeMemory::pin(Bytes size) {
  const std::lock_guard one_at_a_time(growth_);
  {
    const std::lock_guard lock(mutex_);
    if (size > minus(kLargestAllocation, pinned_)) return CUDA_ERROR_OUT_OF_MEMORY;
    pinned_ += size;
  }
  if (books_.grow().granted) return CUDA_SUCCESS;
  unpin(size);
  books_.refused({.size = size, .host_most = {}, .host_used = {}, .pinned = true});
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void NativeMemory::pin_unasked(Bytes size) {
  {
    const std::lock_guard lock(mutex_);
    pinned_ += size;
  }
  books_.claim();
}

void NativeMemory::unpin(Bytes size) {
  {
    const std::lock_guard lock(mutex_);
    pinned_ = minus(pinned_, size);
  }
  books_.report(false);
}

void NativeMemory::set_context_size(Bytes size) {
  {
    const std::lock_guard lock(mutex_);
    if (context_ == size) return;
    context_ = size;
  }
  books_.report(false);
}

MemoryUse NativeMemory::use() const {
  const std::lock_guard lock(mutex_);
  return {.swappable = {},
          .resident = {},
          .pinned = counted(allocated_) + pinned_,
          .context = context_,
          .host = {}};
}

void NativeMemory::set_allowed(Bytes allowed) {
  const std::lock_guard lock(mutex_);
  allowed_ = allowed;
}

Bytes NativeMemory::allowed() const {
  const std::lock_guard lock(mutex_);
  return allowed_;
}

}  // namespace sharedgpu
