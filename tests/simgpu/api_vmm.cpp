// SPDX-License-Identifier: Apache-2.0
// Virtual-memory management: cuMemAddressReserve, cuMemCreate, cuMemMap and related functions.
#include <cstring>

#include "tests/simgpu/api.h"

using namespace sharedgpu;
using namespace sharedgpu::simgpu;

namespace {

Driver::Handle& find_handle(Driver& d, CUmemGenericAllocationHandle handle) {
  auto found = d.handles.find(handle);
  require(found != d.handles.end(), CUDA_ERROR_INVALID_VALUE);
  return found->second;
}

// Call this with the driver's mutex held.
CUmemGenericAllocationHandle add_handle(Driver& d, const PhysicalPtr& physical) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  const bool host = physical->device() == kHostNumber;
  properties.location.type =
      host ? static_cast<CUmemLocationType>(kLocationHost) : CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = host ? 0 : physical->device();
  if (physical->exportable) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const CUmemGenericAllocationHandle handle = d.next_handle++;
  d.handles[handle] = {physical, 1, properties};
  return handle;
}

// Returns the store for memory with these properties: that of the device, or that of the host.
// CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT is for prefetches only.
PhysicalStore& store_of(const CUmemAllocationProp& properties) {
  Driver& d = driver();
  if (properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE) return *d.gpu(properties.location.id).store;
  require(on_host(properties.location), CUDA_ERROR_INVALID_VALUE);
  return *d.host_store;
}

// The device whose access to [address, ...) is set or queried. The host can access only its own memory.
int accessor_of(const CUmemLocation& location, CUdeviceptr address) {
  if (!on_host(location)) return gpu_of(location).number;
  require(driver().space->lies_on_host(address), CUDA_ERROR_INVALID_VALUE);
  return kHostNumber;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemGetAllocationGranularity(std::size_t* granularity,
                                               const CUmemAllocationProp* properties,
                                               CUmemAllocationGranularity_flags) {
  return call("cuMemGetAllocationGranularity", Needs::init, [&] {
    require(granularity != nullptr && properties != nullptr, CUDA_ERROR_INVALID_VALUE);
    store_of(*properties);
    *granularity = kGranule.count;
  });
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* address, std::size_t size, std::size_t alignment,
                                     CUdeviceptr hint, unsigned long long flags) {
  return call("cuMemAddressReserve", Needs::init, [&] {
    require(address != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
    *address = driver().space->reserve({size}, {alignment}, hint);
  });
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, std::size_t size) {
  return call("cuMemAddressFree", Needs::init, [&] { driver().space->free_reservation(address, {size}); });
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t size,
                             const CUmemAllocationProp* properties, unsigned long long flags) {
  return call("cuMemCreate", Needs::device, [&] {
    require(handle != nullptr && properties != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
    require(properties->type == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
    PhysicalStore& store = store_of(*properties);
    const bool exportable = properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    require(exportable || properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE,
            CUDA_ERROR_NOT_SUPPORTED);
    require(!exportable || !on_host(properties->location), CUDA_ERROR_INVALID_VALUE);
    count_allocation();
    Driver& d = driver();
    PhysicalPtr physical = store.create({size});
    physical->exportable = exportable;
    std::lock_guard lock(d.mutex);
    *handle = d.next_handle++;
    d.handles[*handle] = {physical, 1, *properties};
  });
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  return call("cuMemRelease", Needs::init, [&] {
    Driver& d = driver();
    PhysicalPtr gone;  // freed after the lock is released
    std::lock_guard lock(d.mutex);
    Driver::Handle& found = find_handle(d, handle);
    if (--found.references > 0) return;
    gone = std::move(found.physical);
    d.handles.erase(handle);
  });
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return call("cuMemRetainAllocationHandle", Needs::init, [&] {
    require(handle != nullptr, CUDA_ERROR_INVALID_VALUE);
    Driver& d = driver();
    PhysicalPtr physical = d.space->physical_at(reinterpret_cast<Address>(address));
    std::lock_guard lock(d.mutex);
    for (auto& [key, value] : d.handles) {
      if (value.physical != physical) continue;
      ++value.references;
      *handle = key;
      return;
    }
    *handle = add_handle(d, physical);
  });
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                        CUmemGenericAllocationHandle handle) {
  return call("cuMemGetAllocationPropertiesFromHandle", Needs::init, [&] {
    require(properties != nullptr, CUDA_ERROR_INVALID_VALUE);
    Driver& d = driver();
    std::lock_guard lock(d.mutex);
    *properties = find_handle(d, handle).properties;
  });
}

CUresult CUDAAPI cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type, unsigned long long flags) {
  return call("cuMemExportToShareableHandle", Needs::init, [&] {
    require(shareable != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
    Driver& d = driver();
    PhysicalPtr physical;
    {
      std::lock_guard lock(d.mutex);
      physical = find_handle(d, handle).physical;
    }
    require(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && physical->exportable,
            CUDA_ERROR_INVALID_VALUE);
    const int descriptor = physical->share();
    std::memcpy(shareable, &descriptor, sizeof descriptor);
  });
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle,
                                                CUmemAllocationHandleType type) {
  return call("cuMemImportFromShareableHandle", Needs::device, [&] {
    require(handle != nullptr, CUDA_ERROR_INVALID_VALUE);
    require(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
    Driver& d = driver();
    Described described = describe(static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle)));
    Gpu& gpu = d.gpu_of(described.piece);
    auto physical = std::make_shared<Physical>(*gpu.shared, gpu.number, std::move(described.file),
                                               described.piece.offset, described.size);
    std::lock_guard lock(d.mutex);
    *handle = add_handle(d, physical);
  });
}

CUresult CUDAAPI cuMemMap(CUdeviceptr address, std::size_t size, std::size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return call("cuMemMap", Needs::device, [&] {
    require(offset == 0, CUDA_ERROR_NOT_SUPPORTED);
    require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    Driver& d = driver();
    PhysicalPtr physical;
    {
      std::lock_guard lock(d.mutex);
      physical = find_handle(d, handle).physical;
    }
    require(size == physical->size().count, CUDA_ERROR_NOT_SUPPORTED);
    d.space->map(address, {size}, physical);
  });
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, std::size_t size) {
  return call("cuMemUnmap", Needs::init, [&] { driver().space->unmap(address, {size}); });
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, std::size_t size, const CUmemAccessDesc* descriptions,
                                std::size_t count) {
  return call("cuMemSetAccess", Needs::device, [&] {
    require(descriptions != nullptr && count > 0, CUDA_ERROR_INVALID_VALUE);
    for (std::size_t i = 0; i < count; ++i) {
      const int accessor = accessor_of(descriptions[i].location, address);
      driver().space->set_access(address, {size}, access_of(descriptions[i].flags), accessor);
    }
  });
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                                CUdeviceptr address) {
  return call("cuMemGetAccess", Needs::init, [&] {
    require(flags != nullptr && location != nullptr, CUDA_ERROR_INVALID_VALUE);
    Access access = driver().space->access_at(address, accessor_of(*location, address));
    *flags = access == Access::read_write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : access == Access::read     ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                          : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  });
}

}  // extern "C"
