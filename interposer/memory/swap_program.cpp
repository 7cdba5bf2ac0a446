// SPDX-License-Identifier: Apache-2.0
// The program's own physical memory: a range with a reference count, whose handles the program maps at
// addresses of its choice. The range is identified by its own address, which the program never accesses.
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
  // Exportable memory is exported as a single handle.
  const bool whole = kind.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
  const CUresult result = make_room([&](Wish wish) {
    return add_range(&made.range, size, false, whole ? size : options_.handle, made.kind.get(), wish);
  });
  if (result != CUDA_SUCCESS) return result;
  *id = made.range->base;
  {
    const MutexLock lock(mutex_);
    program_.add(std::move(made));
  }
  books_.report(false);
  return CUDA_SUCCESS;
}

std::optional<CUresult> SwapMemory::release(Id id) {
  MutexLock lock(mutex_);
  Made* const made = program_.find(id);
  if (made == nullptr) return std::nullopt;
  if (made->references == 0) return CUDA_ERROR_INVALID_VALUE;
  --made->references;
  return drop_if_unused(id);
}

// Called when a reference or mapping has been removed.
CUresult SwapMemory::drop_if_unused(Id id) {
  if (!program_.find(id)->unused()) return CUDA_SUCCESS;
  auto node = program_.take_out(id);  // no thread finds it from now on
  mutex_.unlock();
  // Unlike cuMemFree, these calls do not wait for the GPU, except for our own copies that a failure has left
  // in flight.
  CUresult result = mover_->unsettled() ? device_.synchronize() : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) result = take_down(*node.mapped().range);
  mutex_.lock();
  if (result != CUDA_SUCCESS) {
    node.mapped().references = 1;  // the driver refused to free it: the program may release it again
    program_.put_back(std::move(node));
  }
  return result;
}

std::optional<CUmemAllocationProp> SwapMemory::properties(Id id) const {
  const MutexLock lock(mutex_);
  const Made* const made = program_.find(id);
  if (made == nullptr) return std::nullopt;
  return *made->kind;
}

std::optional<CUresult> SwapMemory::map(CUdeviceptr address, Bytes size, Id id) {
  const MutexLock lock(mutex_);
  Made* const made = program_.find(id);
  if (made == nullptr) return std::nullopt;
  const bool taken = program_.next(address, size).has_value();
  if (size != made->range->size)
    return CUDA_ERROR_NOT_SUPPORTED;  // the driver maps all of a handle or nothing
  if (address % granularity_.count != 0 || taken) return CUDA_ERROR_INVALID_VALUE;
  program_.map(address, id);
  const CUresult result = show(*made, address);
  if (result == CUDA_SUCCESS) return result;
  hide(*made, address);
  program_.unmap(address);
  drop_if_unused(id);
  return result;
}

std::optional<ProgramMemory::Id> SwapMemory::retain(CUdeviceptr address) {
  const MutexLock lock(mutex_);
  const auto mapping = program_.mapping_at(address);
  if (!mapping) return std::nullopt;
  ++program_.find(mapping->id)->references;
  return mapping->id;
}

std::optional<ProgramMemory::Mapping> SwapMemory::next(CUdeviceptr address, Bytes size) const {
  const MutexLock lock(mutex_);
  const auto mapping = program_.next(address, size);
  if (!mapping) return std::nullopt;
  return Mapping{mapping->address, mapping->range->size};
}

CUresult SwapMemory::unmap(CUdeviceptr address) {
  const MutexLock lock(mutex_);
  const auto mapping = program_.mapping_of(address);
  if (!mapping) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = hide(*program_.find(mapping->id), address); result != CUDA_SUCCESS)
    return result;
  program_.unmap(address);
  drop_if_unused(mapping->id);  // the unmapping itself has succeeded in any case
  return CUDA_SUCCESS;
}

CUresult SwapMemory::set_access(CUdeviceptr address, const CUmemAccessDesc* access, std::size_t count) {
  MutexLock lock(mutex_);
  const auto mapping = program_.mapping_of(address);
  if (!mapping) return CUDA_ERROR_INVALID_VALUE;
  Range& range = *mapping->range;
  const std::vector<CUmemAccessDesc> news(access, access + count);
  for (Handle& handle : range.handles) {
    wait_and_claim(handle);
    const CUdeviceptr at = address + (handle.address - range.base);
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

// Adds a view at `address` to each handle, and maps it if the handle has memory.
CUresult SwapMemory::show(Made& made, CUdeviceptr address) {
  CUresult result = CUDA_SUCCESS;
  ++allocations_;
  for (Handle& handle : made.range->handles) {
    wait_and_claim(handle);
    handle.last_used = allocations_;
    handle.views.push_back({.address = address + (handle.address - made.range->base), .access = {}});
    if (handle.accessible) {
      mutex_.unlock();
      result = mover_->show(handle);
      mutex_.lock();
    }
    unclaim(handle);
    if (result != CUDA_SUCCESS) break;
  }
  return result;
}

CUresult SwapMemory::hide(Made& made, CUdeviceptr address) {
  CUresult result = CUDA_SUCCESS;
  for (Handle& handle : made.range->handles) {
    wait_and_claim(handle);
    const CUdeviceptr at = address + (handle.address - made.range->base);
    const auto view = std::find_if(handle.views.begin(), handle.views.end(),
                                   [=](const View& each) { return each.address == at; });
    if (view != handle.views.end()) {
      mutex_.unlock();
      result = mover_->hide(handle, *view);
      mutex_.lock();
      if (result == CUDA_SUCCESS) handle.views.erase(view);
    }
    unclaim(handle);
    if (result != CUDA_SUCCESS) break;
  }
  return result;
}

std::optional<CUresult> SwapMemory::settle(Id id, CUmemGenericAllocationHandle* real) {
  MutexLock lock(mutex_);
  const Made* const made = program_.find(id);
  if (made == nullptr) return std::nullopt;
  Range& range = *made->range;
  if (range.handles.size() != 1) return CUDA_ERROR_INVALID_VALUE;  // not created for export
  lock.unlock();
  if (const CUresult result = settle(id, range.size); result != CUDA_SUCCESS) return result;
  lock.lock();
  Handle& handle = range.handles.front();
  wait_and_claim(handle);
  lock.unlock();
  const CUresult result = device_.retain(real, handle.address);
  lock.lock();
  unclaim(handle);
  return result;
}

}  // namespace sharedgpu
