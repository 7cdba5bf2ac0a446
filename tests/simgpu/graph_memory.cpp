// SPDX-License-Identifier: Apache-2.0
#include "tests/simgpu/graph_memory.h"

#include <algorithm>
#include <iterator>

#include "tests/simgpu/driver.h"
#include "tests/simgpu/errors.h"

namespace sharedgpu::simgpu {

Work graph_allocation(Address begin) {
  return {CU_GRAPH_NODE_TYPE_MEM_ALLOC,
          [begin](Context&) {
            return driver().graph_memory->begin_use(begin) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
          },
          begin};
}

Work graph_free(Address begin) {
  return {CU_GRAPH_NODE_TYPE_MEM_FREE, [begin](Context&) {
            return driver().graph_memory->end_use(begin) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
          }};
}

Address GraphMemory::reserve(Bytes size, PhysicalStore& store, int device) {
  const Bytes whole = round_up(size, kGranule);
  const Address begin = space_.reserve(whole, kGranule, 0);
  std::lock_guard lock(mutex_);
  blocks_[begin] = {whole, &store, device};
  return begin;
}

bool GraphMemory::knows(Address begin) const {
  std::lock_guard lock(mutex_);
  return blocks_.contains(begin);
}

bool GraphMemory::covers(const Range& range) const {
  std::lock_guard lock(mutex_);
  auto after = blocks_.upper_bound(range.begin);
  return after != blocks_.begin() &&
         range.end() <= std::prev(after)->first + std::prev(after)->second.size.count;
}

void GraphMemory::back(Address begin) {
  std::lock_guard lock(mutex_);
  Block& block = blocks_.at(begin);
  if (block.backed) return;
  space_.map(begin, block.size, block.store->create(block.size), true);
  space_.set_access(begin, block.size, Access::read_write, block.device);
  block.backed = true;
  Statistics& all = statistics_[block.device];
  all.reserved += block.size;
  all.reserved_high = std::max(all.reserved_high, all.reserved);
}

bool GraphMemory::begin_use(Address begin) {
  std::lock_guard lock(mutex_);
  auto found = blocks_.find(begin);
  if (found == blocks_.end() || found->second.used) return false;
  found->second.used = true;
  Statistics& all = statistics_[found->second.device];
  all.used += found->second.size;
  all.used_high = std::max(all.used_high, all.used);
  return true;
}

bool GraphMemory::end_use(Address begin) {
  std::lock_guard lock(mutex_);
  auto found = blocks_.find(begin);
  if (found == blocks_.end() || !found->second.used) return false;
  found->second.used = false;
  statistics_[found->second.device].used -= found->second.size;
  return true;
}

void GraphMemory::trim(int device) {
  std::lock_guard lock(mutex_);
  for (auto& [begin, block] : blocks_) {
    if (block.device != device || !block.backed || block.used) continue;
    space_.unmap(begin, block.size);
    block.backed = false;
    statistics_[device].reserved -= block.size;
  }
}

GraphMemory::Statistics GraphMemory::statistics(int device) {
  std::lock_guard lock(mutex_);
  return statistics_[device];
}

}  // namespace sharedgpu::simgpu
