// SPDX-License-Identifier: Apache-2.0
// The program's own physical memory: a range with a reference count, whose handles the program maps where it
// likes. The range's own addresses, which the program never sees, are its name.
#include <algorithm>
#include <iterator>
#include <utility>

#include "interposer/memory/swap_memory.h"

namespace sharedgpu {
namespace {

void merge(std::vector<CUmemAccessDesc>& all, const CUmemAccessDesc& news) {
  const auto known = std::find_if(all.begin(), all.end(), [&](const CUmemAccessDesc& old) {
    return old.location.type == news.location.type && old.location.id == news.location.id;
  });
  if (known == all.end())
    all.push_back(news);
  else
    known->flags = news.flags;
}

}  // namespace

CUresult SwapMemory::create(Id* id, Bytes size, const CUmemAllocationProp& kind) {
  if (id == nullptr || size == Bytes{} || size != round_up(size)) return CUDA_ERROR_INVALID_VALUE;
  Made made{.range = nullptr, .kind = std::make_unique<const CUmemAllocationProp>(kind)};
  // What may be exported is exported as one.
  const bool whole = kind.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
  const CUresult result = make_room([&](Wish wish) {
    return add_range(&made.range, size, false, whole ? size : options_.handle, made.kind.get(), wish);
  });
  if (result != CUDA_SUCCESS) return result;
  *id = made.range->base;
  {
    const std::lock_guard lock(mutex_);
    made_.emplace(*id, std::move(made));
  }
  books_.report(false);
  return CUDA_SUCCESS;
}

std::optional<CUresult> SwapMemory::release(Id id) {
  std::unique_lock lock(mutex_);
  const auto found = made_.find(id);
  if (found == made_.end()) return std::nullopt;
  if (found->second.references == 0) return CUDA_ERROR_INVALID_VALUE;
  --found->second.references;
  return drop_if_unused(lock, id);
}

// The last reference or the last mapping is gone.
CUresult SwapMemory::drop_if_unused(std::unique_lock<std::mutex>& lock, Id id) {
  const auto found = made_.find(id);
  if (found->second.references != 0 || found->second.mappings != 0) return CUDA_SUCCESS;
  auto node = made_.extract(found);  // nobody finds it from now on
  lock.unlock();
  // Unlike cuMemFree, these calls do not wait for the GPU; only for copies of ours that a failure left
  // behind.
  CUresult result = mover_->unsettled() ? device_.synchronize() : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) result = take_down(*node.mapped().range);
  lock.lock();
  if (result != CUDA_SUCCESS) {
    node.mapped().references = 1;  // the driver would not have it back: it may be given back again
    made_.insert(std::move(node));
  }
  return result;
}

std::optional<CUmemAllocationProp> SwapMemory::properties(Id id) const {
  const std::lock_guard lock(mutex_);
  const auto found = made_.find(id);
  if (found == made_.end()) return std::nullopt;
  return *found->second.kind;
}

std::optional<CUresult> SwapMemory::map(CUdeviceptr address, Bytes size, Id id) {
  std::unique_lock lock(mutex_);
  const auto found = made_.find(id);
  if (found == made_.end()) return std::nullopt;
  Made& made = found->second;
  const auto after = mappings_.lower_bound(address);
  const bool taken = mapping_at(address) != mappings_.end() ||
                     (after != mappings_.end() && after->first < address + size.count);
  if (size != made.range->size)
    return CUDA_ERROR_NOT_SUPPORTED;  // the driver maps all of a handle or nothing
  if (address % granularity_.count != 0 || taken) return CUDA_ERROR_INVALID_VALUE;
  mappings_.emplace(address, id);
  ++made.mappings;
  const CUresult result = show(lock, made, address);
  if (result == CUDA_SUCCESS) return result;
  hide(lock, made, address);
  mappings_.erase(address);
  --made.mappings;
  drop_if_unused(lock, id);
  return result;
}

std::optional<ProgramMemory::Id> SwapMemory::retain(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const auto mapping = mapping_at(address);
  if (mapping == mappings_.end()) return std::nullopt;
  ++made_.find(mapping->second)->second.references;
  return mapping->second;
}

std::optional<ProgramMemory::Mapping> SwapMemory::next(CUdeviceptr address, Bytes size) const {
  const std::lock_guard lock(mutex_);
  auto mapping = mapping_at(address);
  if (mapping == mappings_.end()) mapping = mappings_.lower_bound(address);
  if (mapping == mappings_.end() || mapping->first >= address + size.count) return std::nullopt;
  return Mapping{mapping->first, made_.find(mapping->second)->second.range->size};
}

CUresult SwapMemory::unmap(CUdeviceptr address) {
  std::unique_lock lock(mutex_);
  const auto mapping = mappings_.find(address);
  if (mapping == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  const Id id = mapping->second;
  Made& made = made_.find(id)->second;
  if (const CUresult result = hide(lock, made, address); result != CUDA_SUCCESS) return result;
  mappings_.erase(address);
  --made.mappings;
  drop_if_unused(lock, id);  // the program has unmapped it in any case
  return CUDA_SUCCESS;
}

CUresult SwapMemory::set_access(CUdeviceptr address, const CUmemAccessDesc* access, std::size_t count) {
  std::unique_lock lock(mutex_);
  const auto mapping = mappings_.find(address);
  if (mapping == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  Made& made = made_.find(mapping->second)->second;
  const std::vector<CUmemAccessDesc> news(access, access + count);
  for (Handle& handle : made.range->handles) {
    claim_settled(lock, handle);
    const CUdeviceptr at = address + (handle.address - made.range->base);
    const auto view = std::find_if(handle.views.begin(), handle.views.end(),
                                   [=](const View& each) { return each.address == at; });
    if (view == handle.views.end()) {  // another thread is unmapping it
      unclaim(handle);
      return CUDA_ERROR_INVALID_VALUE;
    }
    lock.unlock();
    const CUresult result = view->mapped ? device_.set_access(at, handle.size, news) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
      for (const CUmemAccessDesc& each : news) merge(view->access, each);
    lock.lock();
    unclaim(handle);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// Enters a view at `address` into each handle, and maps it where the handle has memory.
CUresult SwapMemory::show(std::unique_lock<std::mutex>& lock, Made& made, CUdeviceptr address) {
  CUresult result = CUDA_SUCCESS;
  ++allocations_;
  for (Handle& handle : made.range->handles) {
    claim_settled(lock, handle);
    handle.last_used = allocations_;
    handle.views.push_back({.address = address + (handle.address - made.range->base), .access = {}});
    if (handle.accessible) {
      lock.unlock();
      result = mover_->show(handle);
      lock.lock();
    }
    unclaim(handle);
    if (result != CUDA_SUCCESS) break;
  }
  return result;
}

CUresult SwapMemory::hide(std::unique_lock<std::mutex>& lock, Made& made, CUdeviceptr address) {
  CUresult result = CUDA_SUCCESS;
  for (Handle& handle : made.range->handles) {
    claim_settled(lock, handle);
    const CUdeviceptr at = address + (handle.address - made.range->base);
    const auto view = std::find_if(handle.views.begin(), handle.views.end(),
                                   [=](const View& each) { return each.address == at; });
    if (view != handle.views.end()) {
      lock.unlock();
      result = mover_->hide(handle, *view);
      lock.lock();
      if (result == CUDA_SUCCESS) handle.views.erase(view);
    }
    unclaim(handle);
    if (result != CUDA_SUCCESS) break;
  }
  return result;
}

void SwapMemory::claim_settled(std::unique_lock<std::mutex>& lock, Handle& handle) {
  settled_.wait(lock, [&] { return !handle.busy; });
  claim(handle);
}

// The mapping that `address` lies in.
std::map<CUdeviceptr, ProgramMemory::Id>::const_iterator SwapMemory::mapping_at(CUdeviceptr address) const {
  const auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return mappings_.end();
  const auto mapping = std::prev(after);
  const Bytes size = made_.find(mapping->second)->second.range->size;
  return address - mapping->first < size.count ? mapping : mappings_.end();
}

std::optional<CUresult> SwapMemory::settle(Id id, CUmemGenericAllocationHandle* real) {
  std::unique_lock lock(mutex_);
  const auto found = made_.find(id);
  if (found == made_.end()) return std::nullopt;
  Range& range = *found->second.range;
  if (range.handles.size() != 1) return CUDA_ERROR_INVALID_VALUE;  // it was not made to be exported
  lock.unlock();
  if (const CUresult result = settle(id, range.size); result != CUDA_SUCCESS) return result;
  lock.lock();
  Handle& handle = range.handles.front();
  claim_settled(lock, handle);
  lock.unlock();
  const CUresult result = device_.retain(real, handle.address);
  lock.lock();
  unclaim(handle);
  return result;
}

}  // namespace sharedgpu
