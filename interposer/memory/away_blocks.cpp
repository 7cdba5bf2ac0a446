// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/away_blocks.h"

namespace sharedgpu {

std::optional<AwayBlock> AwayBlocks::take(Bytes size) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = unused_.find(size); found != unused_.end()) {
      const AwayBlock block = found->second.back();
      found->second.pop_back();
      if (found->second.empty()) unused_.erase(found);
      unused_bytes_ -= size;
      return block;
    }
  }
  // Unused blocks of other sizes may occupy the memory that the new block needs.
  if (budget_.room() < size) trim({});
  return budget_.room() < size ? std::nullopt : create(size);
}

void AwayBlocks::give(const AwayBlock& block, Bytes size) {
  const std::lock_guard lock(mutex_);
  unused_[size].push_back(block);
  unused_bytes_ += size;
}

void AwayBlocks::trim(Bytes keep) {
  for (;;) {
    AwayBlock block;
    Bytes size;
    {
      const std::lock_guard lock(mutex_);
      if (unused_bytes_ <= keep) return;
      const auto largest = std::prev(unused_.end());
      size = largest->first;
      block = largest->second.back();
      largest->second.pop_back();
      if (largest->second.empty()) unused_.erase(largest);
      unused_bytes_ -= size;
    }
    destroy(block, size);
  }
}

Bytes AwayBlocks::held() const {
  const std::lock_guard lock(mutex_);
  return {held_};
}

// The block is counted before it is created, so that the count is never below the memory in use.
std::optional<AwayBlock> AwayBlocks::create(Bytes size) {
  change_held(static_cast<std::int64_t>(size.count));
  AwayBlock block;
  CUresult result = device_.create_on_host(&block.physical, size);
  if (result == CUDA_SUCCESS) {
    result = device_.reserve(&block.home, size);
    if (result == CUDA_SUCCESS) {
      result = device_.map(block.home, size, block.physical);
      if (result == CUDA_SUCCESS) {
        result = device_.allow_access(block.home, size);
        if (result == CUDA_SUCCESS) return block;
        device_.unmap(block.home, size);
      }
      device_.unreserve(block.home, size);
    }
    device_.release(block.physical);
  }
  change_held(-static_cast<std::int64_t>(size.count));
  return std::nullopt;
}

// If the driver refuses to unmap the block, its memory stays in use and counted.
void AwayBlocks::destroy(const AwayBlock& block, Bytes size) {
  if (device_.unmap(block.home, size) != CUDA_SUCCESS) return;
  device_.unreserve(block.home, size);
  if (device_.release(block.physical) == CUDA_SUCCESS) change_held(-static_cast<std::int64_t>(size.count));
}

void AwayBlocks::change_held(std::int64_t by) {
  const std::lock_guard lock(mutex_);
  held_ += static_cast<std::uint64_t>(by);
  budget_.count_uncharged({held_});
}

}  // namespace sharedgpu
