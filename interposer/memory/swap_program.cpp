// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/swap_program.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sharedgpu {
namespace {

void add_access(std::vector<CUmemAccessDesc>& all, const CUmemAccessDesc& news) {
  const auto known = std::find_if(all.begin(), all.end(), [&](const CUmemAccessDesc& old) {
    return old.location.type == news.location.type && old.location.id == news.location.id;
  });
  if (known == all.end())
    all.push_back(news);
  else
    known->flags = news.flags;
}

}  // namespace

SwapProgram::UseOfHandles::UseOfHandles(SwapProgram& program) : program_(program) {
  const MutexLock lock(program_.common_.mutex);
  while (program_.merging_) program_.common_.changed.wait(program_.common_.mutex);
  ++program_.users_;
}

SwapProgram::UseOfHandles::~UseOfHandles() {
  const MutexLock lock(program_.common_.mutex);
  if (--program_.users_ == 0) program_.common_.changed.notify_all();
}

CUresult SwapProgram::create(Id* id, Bytes size, const CUmemAllocationProp& kind) {
  if (id == nullptr || size == Bytes{} || size.count % common_.device.granularity().count != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Made made{.range = nullptr, .kind = std::make_unique<const CUmemAllocationProp>(kind)};
  // Memory for export has one handle, since it is exported as a whole. In a process that may be oversized,
  // this handle could be larger than the window. Such a process merges the handles at the export.
  const bool whole =
      kind.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE && !common_.books.may_be_oversized();
  const CUresult result = freeing_.make_room([&](Wish wish) {
    return ranges_.add(
        &made.range, {.size = size, .handle = whole ? size : common_.options.handle, .kind = made.kind.get()},
        wish);
  });
  if (result != CUDA_SUCCESS) return result;
  *id = made.range->base;
  {
    const MutexLock lock(common_.mutex);
    common_.program.add(std::move(made));
  }
  common_.books.report(false);
  return CUDA_SUCCESS;
}

std::optional<CUresult> SwapProgram::release(Id id) {
  const UseOfHandles use(*this);
  MutexLock lock(common_.mutex);
  Made* const made = common_.program.find(id);
  if (made == nullptr) return std::nullopt;
  if (made->references == 0) return CUDA_ERROR_INVALID_VALUE;
  --made->references;
  return drop_if_unused(id);
}

// Frees the memory if it has neither references nor mappings. Called when a reference or mapping has been
// removed.
CUresult SwapProgram::drop_if_unused(Id id) {
  if (!common_.program.find(id)->unused()) return CUDA_SUCCESS;
  auto node = common_.program.take_out(id);  // no thread finds the range after this
  common_.mutex.unlock();
  // Unlike cuMemFree, cuMemRelease and cuMemUnmap do not wait for the GPU.
  const CUresult result = ranges_.take_down(*node.mapped().range);
  common_.mutex.lock();
  if (result != CUDA_SUCCESS) {
    node.mapped().references =
        1;  // the driver has refused to free the memory; the program may try to release it again
    common_.program.put_back(std::move(node));
  }
  return result;
}

std::optional<CUmemAllocationProp> SwapProgram::properties(Id id) const {
  const MutexLock lock(common_.mutex);
  const Made* const made = common_.program.find(id);
  if (made == nullptr) return std::nullopt;
  return *made->kind;
}

std::optional<CUresult> SwapProgram::map(CUdeviceptr address, Bytes size, Id id) {
  const UseOfHandles use(*this);
  const MutexLock lock(common_.mutex);
  Made* const made = common_.program.find(id);
  if (made == nullptr) return std::nullopt;
  const bool taken = common_.program.next(address, size).has_value();
  if (size != made->range->size)
    return CUDA_ERROR_NOT_SUPPORTED;  // like the driver, maps only the whole memory of cuMemCreate
  if (address % common_.device.granularity().count != 0 || taken) return CUDA_ERROR_INVALID_VALUE;
  common_.program.map(address, id);
  const CUresult result = show(*made, address);
  if (result == CUDA_SUCCESS) return result;
  hide(*made, address);
  common_.program.unmap(address);
  drop_if_unused(id);
  return result;
}

std::optional<ProgramMemory::Id> SwapProgram::retain(CUdeviceptr address) {
  const MutexLock lock(common_.mutex);
  const auto mapping = common_.program.mapping_at(address);
  if (!mapping) return std::nullopt;
  ++common_.program.find(mapping->id)->references;
  return mapping->id;
}

std::optional<ProgramMemory::Mapping> SwapProgram::next(CUdeviceptr address, Bytes size) const {
  const MutexLock lock(common_.mutex);
  const auto mapping = common_.program.next(address, size);
  if (!mapping) return std::nullopt;
  return Mapping{mapping->address, mapping->range->size};
}

CUresult SwapProgram::unmap(CUdeviceptr address) {
  const UseOfHandles use(*this);
  const MutexLock lock(common_.mutex);
  const auto mapping = common_.program.mapping_of(address);
  if (!mapping) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = hide(*common_.program.find(mapping->id), address); result != CUDA_SUCCESS)
    return result;
  common_.program.unmap(address);
  common_.landmarks.forget(address, mapping->range->size);
  drop_if_unused(mapping->id);  // the result is ignored, since the unmapping has succeeded
  return CUDA_SUCCESS;
}

CUresult SwapProgram::set_access(CUdeviceptr address, const CUmemAccessDesc* access, std::size_t count) {
  const UseOfHandles use(*this);
  MutexLock lock(common_.mutex);
  const auto mapping = common_.program.mapping_of(address);
  if (!mapping) return CUDA_ERROR_INVALID_VALUE;
  Range& range = *mapping->range;
  const std::vector<CUmemAccessDesc> news(access, access + count);
  for (Handle& handle : range.handles) {
    common_.wait_and_claim(handle);
    const CUdeviceptr at = address + (handle.address - range.base);
    const auto view = std::ranges::find(handle.views, at, &View::address);
    if (view == handle.views.end()) {  // another thread is unmapping the memory
      common_.unclaim(handle);
      return CUDA_ERROR_INVALID_VALUE;
    }
    lock.unlock();
    const CUresult result = view->mapped ? common_.device.set_access(at, handle.size, news) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
      for (const CUmemAccessDesc& each : news) add_access(view->access, each);
    lock.lock();
    common_.unclaim(handle);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// Adds a view of each handle, the first at `address`. Maps the view if the handle has physical memory.
CUresult SwapProgram::show(Made& made, CUdeviceptr address) {
  CUresult result = CUDA_SUCCESS;
  const std::uint64_t now = common_.residency.next_use();
  for (Handle& handle : made.range->handles) {
    common_.wait_and_claim(handle);
    handle.last_used = now;
    handle.views.push_back({.address = address + (handle.address - made.range->base), .access = {}});
    if (handle.accessible) {
      common_.mutex.unlock();
      result = common_.mover->show(handle);
      common_.mutex.lock();
    }
    common_.unclaim(handle);
    if (result != CUDA_SUCCESS) break;
  }
  return result;
}

CUresult SwapProgram::hide(Made& made, CUdeviceptr address) {
  CUresult result = CUDA_SUCCESS;
  for (Handle& handle : made.range->handles) {
    common_.wait_and_claim(handle);
    const CUdeviceptr at = address + (handle.address - made.range->base);
    const auto view = std::ranges::find(handle.views, at, &View::address);
    if (view != handle.views.end()) {
      common_.mutex.unlock();
      result = common_.mover->hide(handle, *view);
      common_.mutex.lock();
      if (result == CUDA_SUCCESS) handle.views.erase(view);
    }
    common_.unclaim(handle);
    if (result != CUDA_SUCCESS) break;
  }
  return result;
}

// Takes a reference, since another thread may release the memory while the lock is not held.
std::optional<CUresult> SwapProgram::settle(Id id, CUmemGenericAllocationHandle* real) {
  MutexLock lock(common_.mutex);
  Made* const made = common_.program.find(id);
  if (made == nullptr) return std::nullopt;
  if (made->range->handles.size() != 1 && !made->range->must_merge())
    return CUDA_ERROR_INVALID_VALUE;  // the program has not created the memory for export
  ++made->references;
  const Bytes size = made->range->size;
  lock.unlock();
  CUresult result = pinning_.settle(id, size);
  if (result == CUDA_SUCCESS) {
    lock.lock();
    Handle& handle = made->range->handles.front();
    common_.wait_and_claim(handle);
    lock.unlock();
    result = common_.device.retain(real, handle.address);
    lock.lock();
    common_.unclaim(handle);
    lock.unlock();
  }
  release(id);
  return result;
}

// The wait for `users_` cannot deadlock: the turn thread has claimed no handle, so the threads that use the
// handles never wait for the turn thread.
CUresult SwapProgram::merge(CUdeviceptr address) {
  Range* range = nullptr;
  {
    const MutexLock lock(common_.mutex);
    merging_ = true;
    while (users_ != 0) common_.changed.wait(common_.mutex);
    range = common_.program.under(address, {1}).range;
  }
  const bool merges = range != nullptr && range->must_merge();
  const CUresult result = merges ? merger_.merge(*range) : CUDA_SUCCESS;
  const MutexLock lock(common_.mutex);
  merging_ = false;
  common_.changed.notify_all();
  return result;
}

}  // namespace sharedgpu
