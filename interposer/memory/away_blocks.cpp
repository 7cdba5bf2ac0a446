// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/away_blocks.h"

namespace sharedgpu {

std::optional<AwayBlock> AwayBlocks::take(Bytes size) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = unused_.find(size); found != unused_.end()) return pop(found);
  }
  // Unused blocks of other sizes may occupy the memory that the new block needs.
  if (budget_.room() < size) trim({});
  return budget_.room() < size ? std::nullopt : create(size);
}

Bytes AwayBlocks::room(std::optional<Nanoseconds> now) const {
  const Bytes left = now ? budget_.recent_room(*now) : budget_.room();
  const std::lock_guard lock(mutex_);
  return left > Bytes{~0ull - unused_bytes_.count} ? Bytes{~0ull} : left + unused_bytes_;
}

Bytes AwayBlocks::held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

void AwayBlocks::count(Bytes size) {
  budget_.take_uncharged(size);
  const std::lock_guard lock(mutex_);
  held_ += size;
}

void AwayBlocks::uncount(Bytes size) {
  budget_.give_uncharged(size);
  const std::lock_guard lock(mutex_);
  held_ -= size;
}

// Removes a block of this size from the unused blocks. The mutex must be held.
AwayBlock AwayBlocks::pop(Unused::iterator size) {
  const AwayBlock block = size->second.back();
  size->second.pop_back();
  if (size->second.empty()) unused_.erase(size);
  unused_bytes_ -= block.size;
  return block;
}

void AwayBlocks::give(const AwayBlock& block) {
  const std::lock_guard lock(mutex_);
  unused_[block.size].push_back(block);
  unused_bytes_ += block.size;
}

bool AwayBlocks::trim(Bytes keep) {
  for (bool released = false;; released = true) {
    AwayBlock block;
    {
      const std::lock_guard lock(mutex_);
      if (unused_bytes_ <= keep) return released;
      block = pop(std::prev(unused_.end()));
    }
    if (!destroy(block)) {
      give(block);
      return released;
    }
  }
}

// The block is counted before it is created, so that the count is never below the memory in use.
std::optional<AwayBlock> AwayBlocks::create(Bytes size) {
  count(size);
  AwayBlock block{.physical = 0, .home = 0, .size = size};
  if (device_.create_on_host(&block.physical, size) != CUDA_SUCCESS) {
    uncount(size);
    return std::nullopt;
  }
  if (device_.reserve(&block.home, size) != CUDA_SUCCESS) {
    release(block);
    return std::nullopt;
  }
  if (device_.map(block.home, size, block.physical) != CUDA_SUCCESS) {
    device_.unreserve(block.home, size);
    release(block);
    return std::nullopt;
  }
  if (device_.allow_access(block.home, size) == CUDA_SUCCESS) return block;
  destroy(block);  // if the driver refuses, the block still occupies memory and stays counted
  return std::nullopt;
}

// Returns false if the driver refuses to unmap the block. The block then stays unchanged.
bool AwayBlocks::destroy(const AwayBlock& block) {
  if (device_.unmap(block.home, block.size) != CUDA_SUCCESS) return false;
  device_.unreserve(block.home, block.size);  // if this fails, only addresses are lost
  release(block);
  return true;
}

// If the driver refuses to release the memory, the memory stays counted.
void AwayBlocks::release(const AwayBlock& block) {
  for (int attempt = 0; attempt < 3; ++attempt)
    if (device_.release(block.physical) == CUDA_SUCCESS) return uncount(block.size);
}

}  // namespace sharedgpu
