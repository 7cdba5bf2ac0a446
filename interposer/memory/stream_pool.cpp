// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/stream_pool.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace sharedgpu {
namespace {

constexpr Bytes kLargestRoomyChunk = mebibytes(32);

}  // namespace

// First tries the blocks that this stream has freed itself, since other streams cannot use these blocks yet.
// But a freed block that is more than twice as large as needed is split only if no other block fits.
std::optional<CUdeviceptr> StreamPool::take(Bytes size, StreamId stream) {
  const Bytes needed = Packing::round_up(size);
  if (needed < size) return std::nullopt;
  const auto found = freed_.find(stream);
  Queue* const queue = found == freed_.end() ? nullptr : &found->second;
  std::optional<CUdeviceptr> place;
  if (queue != nullptr) {
    const auto fit = queue->by_size.lower_bound({needed.count, 0});
    if (fit != queue->by_size.end() && fit->first / 2 <= needed.count)
      place = take_from(*queue, fit->second, needed);
  }
  if (!place) place = packing_.take(needed);
  if (!place && queue != nullptr) {
    const auto fit = queue->by_size.lower_bound({needed.count, 0});
    if (fit != queue->by_size.end()) place = take_from(*queue, fit->second, needed);
  }
  if (queue != nullptr && queue->by_age.empty()) freed_.erase(found);
  if (place) use(*place, size);
  return place;
}

// Allocates the first `size` bytes of a freed block in the queue; the rest of the block stays in the queue.
CUdeviceptr StreamPool::take_from(Queue& queue, std::uint64_t age, Bytes size) {
  const auto entry = queue.by_age.find(age);
  Freed& freed = entry->second;
  const CUdeviceptr base = freed.base;
  queue.by_size.erase({freed.size.count, age});
  if (freed.size == size) {
    queue.by_age.erase(entry);
  } else {
    freed.base = packing_.split(base, size);
    freed.size = freed.size - size;
    queue.by_size.emplace(freed.size.count, age);
  }
  return base;
}

void StreamPool::use(CUdeviceptr base, Bytes size) {
  blocks_.emplace(base, size);
  used_ += Packing::round_up(size);
  used_high_ = std::max(used_high_, used_);
}

void StreamPool::add_chunk(CUdeviceptr base, Bytes size, Bytes first) {
  chunks_.emplace(base, size);
  packing_.add_region(base, size, first);
  reserved_high_ = std::max(reserved_high_, reserved());
  use(base, first);
}

bool StreamPool::give(CUdeviceptr block, StreamId stream, FencePtr fence) {
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return false;
  const Bytes size = Packing::round_up(found->second);
  blocks_.erase(found);
  used_ -= size;
  if (fence == nullptr) {
    packing_.give(block);
    return true;
  }
  Queue& queue = freed_[stream];
  const std::uint64_t age = ++frees_;
  queue.by_age.emplace(age, Freed{block, size, std::move(fence)});
  queue.by_size.emplace(size.count, age);
  return true;
}

bool StreamPool::settle() {
  for (auto entry = freed_.begin(); entry != freed_.end();) {
    Queue& queue = entry->second;
    while (!queue.by_age.empty() && queue.by_age.begin()->second.fence->passed()) {
      const auto oldest = queue.by_age.begin();
      packing_.give(oldest->second.base);
      queue.by_size.erase({oldest->second.size.count, oldest->first});
      queue.by_age.erase(oldest);
    }
    entry = queue.by_age.empty() ? freed_.erase(entry) : std::next(entry);
  }
  return freed_.empty();
}

std::vector<StreamPool::Chunk> StreamPool::release(Bytes keep) {
  std::vector<Chunk> released;
  for (auto chunk = chunks_.begin(); chunk != chunks_.end() && reserved() > keep;) {
    const auto& [base, size] = *chunk;
    if (!packing_.is_empty(base)) {
      ++chunk;
      continue;
    }
    packing_.remove_region(base);
    released.push_back({base, size});
    chunk = chunks_.erase(chunk);
  }
  return released;
}

// A new chunk has at most a quarter of the pool's size, unless more is needed now. So less than about a
// quarter of the pool is unused.
Bytes StreamPool::next_chunk(Bytes size, Bytes unit) const {
  const std::uint64_t roomy = std::min(reserved().count / 4, kLargestRoomyChunk.count);
  return round_up(std::max(size, {std::bit_floor(roomy)}), unit);
}

std::optional<StreamPool::Block> StreamPool::find(CUdeviceptr address) const {
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return std::nullopt;
  const auto& [base, size] = *std::prev(after);
  if (address - base >= size.count) return std::nullopt;
  return Block{base, size};
}

}  // namespace sharedgpu
