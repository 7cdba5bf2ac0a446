// SPDX-License-Identifier: Apache-2.0
// Allocations, pinned host memory, attributes of pointers.
#include <sys/mman.h>

#include <cstring>

#include "tests/simgpu/api.h"

using namespace sharedgpu;
using namespace sharedgpu::simgpu;

namespace {

constexpr std::size_t kPitch = 512;

// The allocation of this process that `at` lies in: of a context's heap, of a pool, or managed memory.
// Otherwise the mapping that `at` lies in.
std::optional<Range> find_allocation(Address at) {
  Driver& d = driver();
  std::optional<Range> found;
  auto look = [&](auto& object) {
    if (!found) found = object.find(at);
  };
  d.contexts.for_each([&](Context& context) { look(context.heap()); });
  d.pools.for_each([&](Pool& pool) { look(pool.heap); });
  if (Managed* managed = d.managed_at(at); managed != nullptr && !found) found = managed->find(at);
  if (found) return found;
  return d.space->mapping_at(at);
}

// Returns true if `at` lies in an allocation of cuMemAlloc.
bool in_heap(Address at) {
  bool found = false;
  driver().contexts.for_each([&](Context& context) { found = found || context.heap().find(at); });
  return found;
}

// Returns true if `at` lies in memory of the host that cuMemSetAccess lets the host use.
bool host_may_access(Address at) {
  const AddressSpace& space = *driver().space;
  return space.lies_on_host(at) && space.access_at(at, kHostNumber) != Access::none;
}

// The pool from which the memory at `at` was allocated; null if none.
CUmemoryPool pool_of(Address at) {
  CUmemoryPool found = nullptr;
  driver().pools.for_each([&](Pool& pool) {
    if (pool.heap.find(at)) found = reinterpret_cast<CUmemoryPool>(&pool);
  });
  return found;
}

CUcontext some_context() {
  auto& stack = context_stack();
  return stack.empty() ? nullptr : reinterpret_cast<CUcontext>(stack.back().get());
}

// Gets one attribute. Throws CUDA_ERROR_INVALID_VALUE for a pointer that CUDA does not know.
void get_attribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  auto put = [&](auto value) { std::memcpy(data, &value, sizeof value); };
  auto device = find_allocation(pointer);
  auto host = driver().space->host_at(pointer);
  require(device || host, CUDA_ERROR_INVALID_VALUE);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(pool_of(pointer) != nullptr ? nullptr : some_context());
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(static_cast<unsigned>(device && !driver().space->lies_on_host(device->begin)
                                           ? CU_MEMORYTYPE_DEVICE
                                           : CU_MEMORYTYPE_HOST));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(pointer);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      require(host || driver().managed_at(pointer) != nullptr || host_may_access(pointer),
              CUDA_ERROR_INVALID_VALUE);
      return put(pointer);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put(static_cast<unsigned long long>(device ? device->begin : host->first.begin));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put(static_cast<unsigned>(driver().managed_at(pointer) != nullptr));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(device && !driver().space->lies_on_host(device->begin)
                     ? driver().space->physical_at(device->begin)->device()
                     : 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(device ? device->begin : host->first.begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(static_cast<std::size_t>(device ? device->size.count : host->first.size.count));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put(1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put(0ull);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(pool_of(pointer));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put(static_cast<int>(device && in_heap(device->begin)));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put(static_cast<int>(device && driver().managed_at(pointer) == nullptr &&
                                  !driver().space->lies_on_host(device->begin)));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: {
      std::lock_guard lock(driver().mutex);
      return put(static_cast<unsigned>(device ? driver().sync_memops.count(device->begin) : 0));
    }
    default:
      throw Error{CUDA_ERROR_NOT_SUPPORTED};
  }
}

// Stores the value that cuPointerGetAttributes returns for an unknown pointer.
void put_nothing(void* data, CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: {
      int none = -2;
      std::memcpy(data, &none, sizeof none);
      return;
    }
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      std::memset(data, 0, 4);
      return;
    default:
      std::memset(data, 0, 8);
      return;
  }
}

CUresult allocate_host(const char* name, void** out, std::size_t size, unsigned flags) {
  return call(name, Needs::context, [&] {
    require(out != nullptr && size > 0, CUDA_ERROR_INVALID_VALUE);
    forbid_unsafe_call();
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(memory != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    driver().space->add_host(reinterpret_cast<Address>(memory), {{size}, flags, true});
    *out = memory;
  });
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return call("cuMemGetInfo", Needs::context, [&] {
    DeviceView view = driver().current_gpu().shared->view();
    if (free != nullptr) *free = minus(view.total, view.used).count;
    if (total != nullptr) *total = view.total.count;
  });
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* out, std::size_t size) {
  return call("cuMemAlloc", Needs::context, [&] {
    forbid_unsafe_call();
    require(out != nullptr && size > 0, CUDA_ERROR_INVALID_VALUE);
    count_allocation();
    *out = current_context()->heap().allocate({size});
  });
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr* out, std::size_t* pitch, std::size_t width,
                                    std::size_t height, unsigned int element) {
  return call("cuMemAllocPitch", Needs::context, [&] {
    require(out != nullptr && pitch != nullptr && width > 0 && height > 0, CUDA_ERROR_INVALID_VALUE);
    require(element == 4 || element == 8 || element == 16, CUDA_ERROR_INVALID_VALUE);
    forbid_unsafe_call();
    std::size_t row = width / kPitch * kPitch;
    std::size_t size = 0;
    const bool fits = !__builtin_add_overflow(row, width % kPitch == 0 ? 0 : kPitch, &row) &&
                      !__builtin_mul_overflow(row, height, &size);
    require(fits, CUDA_ERROR_INVALID_VALUE);
    count_allocation();
    *out = current_context()->heap().allocate({size});
    *pitch = row;
  });
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr pointer) {
  return call("cuMemFree", Needs::context, [&] {
    forbid_unsafe_call();  // applies to a null address, too (measured)
    if (pointer == 0) return CUDA_SUCCESS;
    // Waits for the device, as the real function does.
    ContextPtr context = current_context();
    CUresult result = synchronize(*context);
    require(result == CUDA_SUCCESS, result);
    bool freed = context->heap().free(pointer);
    driver().contexts.for_each([&](Context& other) { freed = freed || other.heap().free(pointer); });
    driver().pools.for_each([&](Pool& pool) { freed = freed || pool.heap.free(pointer); });
    for (const auto& gpu : driver().gpus) freed = freed || gpu->managed->free(pointer);
    std::lock_guard lock(driver().mutex);
    driver().sync_memops.erase(pointer);
    return freed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* size, CUdeviceptr pointer) {
  return call("cuMemGetAddressRange", Needs::context, [&] {
    auto found = find_allocation(pointer);
    require(found.has_value(), CUDA_ERROR_NOT_FOUND);
    if (base != nullptr) *base = found->begin;
    if (size != nullptr) *size = found->size.count;
  });
}

CUresult CUDAAPI cuMemHostAlloc(void** out, std::size_t size, unsigned int flags) {
  return allocate_host("cuMemHostAlloc", out, size, flags);
}
CUresult CUDAAPI cuMemAllocHost_v2(void** out, std::size_t size) {
  return allocate_host("cuMemAllocHost", out, size, 0);
}

CUresult CUDAAPI cuMemFreeHost(void* pointer) {
  return call("cuMemFreeHost", Needs::context, [&] {
    forbid_unsafe_call();
    CUresult result = synchronize(*current_context());
    require(result == CUDA_SUCCESS, result);
    HostRegion region = driver().space->remove_host(reinterpret_cast<Address>(pointer), true);
    munmap(pointer, region.size.count);
  });
}

CUresult CUDAAPI cuMemHostRegister_v2(void* pointer, std::size_t size, unsigned int flags) {
  return call("cuMemHostRegister", Needs::context, [&] {
    require(pointer != nullptr && size > 0, CUDA_ERROR_INVALID_VALUE);
    forbid_unsafe_call();
    driver().space->add_host(reinterpret_cast<Address>(pointer), {{size}, flags, false});
  });
}

CUresult CUDAAPI cuMemHostUnregister(void* pointer) {
  return call("cuMemHostUnregister", Needs::context, [&] {
    forbid_unsafe_call();
    CUresult result = synchronize(*current_context());
    require(result == CUDA_SUCCESS, result);
    driver().space->remove_host(reinterpret_cast<Address>(pointer), false);
  });
}

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* pointer, unsigned int flags) {
  return call("cuMemHostGetDevicePointer", Needs::context, [&] {
    require(out != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
    auto at = reinterpret_cast<Address>(pointer);
    require(driver().space->host_at(at).has_value(), CUDA_ERROR_INVALID_VALUE);
    *out = at;
  });
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int* flags, void* pointer) {
  return call("cuMemHostGetFlags", Needs::context, [&] {
    require(flags != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto found = driver().space->host_at(reinterpret_cast<Address>(pointer));
    require(found.has_value() && found->second.owned, CUDA_ERROR_INVALID_VALUE);
    *flags = found->second.flags;
  });
}

CUresult CUDAAPI cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  return call("cuPointerGetAttribute", Needs::init, [&] {
    require(data != nullptr, CUDA_ERROR_INVALID_VALUE);
    get_attribute(data, attribute, pointer);
  });
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                        CUdeviceptr pointer) {
  return call("cuPointerGetAttributes", Needs::init, [&] {
    require(attributes != nullptr && data != nullptr, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; ++i) {
      try {
        get_attribute(data[i], attributes[i], pointer);
      } catch (const Error& error) {
        require(error.code == CUDA_ERROR_INVALID_VALUE, error.code);
        put_nothing(data[i], attributes[i]);
      }
    }
  });
}

}  // extern "C"
