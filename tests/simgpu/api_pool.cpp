// SPDX-License-Identifier: Apache-2.0
// Memory pools and stream-ordered allocation. An allocation call allocates the memory before it returns. The
// memory is freed on the device when the stream reaches the operation that frees it. Memory allocated in a
// capture belongs to the graph.
#include <cstring>

#include "tests/simgpu/api.h"

using namespace sharedgpu;
using namespace sharedgpu::simgpu;

namespace {

std::shared_ptr<Pool> find_pool(CUmemoryPool handle) {
  auto pool = driver().pools.get(handle, CUDA_ERROR_INVALID_VALUE);
  require(!pool->destroyed, CUDA_ERROR_INVALID_VALUE);
  return pool;
}

CUmemoryPool handle_of(const std::shared_ptr<Pool>& pool) {
  return reinterpret_cast<CUmemoryPool>(pool.get());
}

CUdeviceptr allocate_in(const StreamPtr& stream, Pool& pool, std::size_t size) {
  if (capturing(*stream)) {
    Gpu& gpu = driver().current_gpu();
    const Address begin = driver().graph_memory->reserve({size}, *gpu.store, gpu.number);
    submit(stream, graph_allocation(begin));
    return begin;
  }
  forbid_capture(*stream);
  count_allocation();
  try {
    return pool.heap.allocate({size});
  } catch (const Error&) {  // the second try can use memory that is about to be freed or that pools hold
    synchronize(*current_context());
    driver().pools.for_each([](Pool& each) { each.heap.trim({}); });
    return pool.heap.allocate({size});
  }
}

CUresult allocate(DefaultStream zero, CUdeviceptr* out, std::size_t size, CUstream stream) {
  return call("cuMemAllocAsync", Needs::context, [&] {
    require(out != nullptr && size > 0, CUDA_ERROR_INVALID_VALUE);
    std::shared_ptr<Pool> pool;
    {
      Gpu& gpu = driver().current_gpu();
      std::lock_guard lock(driver().mutex);
      pool = gpu.current_pool;
    }
    *out = allocate_in(find_stream(zero, stream), *pool, size);
  });
}

CUresult allocate_from(DefaultStream zero, CUdeviceptr* out, std::size_t size, CUmemoryPool pool,
                       CUstream stream) {
  return call("cuMemAllocFromPoolAsync", Needs::context, [&] {
    require(out != nullptr && size > 0, CUDA_ERROR_INVALID_VALUE);
    *out = allocate_in(find_stream(zero, stream), *find_pool(pool), size);
  });
}

CUresult free_memory(DefaultStream zero, CUdeviceptr pointer, CUstream handle) {
  return call("cuMemFreeAsync", Needs::context, [&] {
    StreamPtr stream = find_stream(zero, handle);
    if (driver().graph_memory->knows(pointer)) {
      submit(stream, graph_free(pointer));
      return;
    }
    forbid_capture(*stream);
    bool known = false;
    driver().pools.for_each([&](Pool& pool) {
      auto found = pool.heap.find(pointer);
      known = known || (found && found->begin == pointer);
    });
    Context* owner = nullptr;
    driver().contexts.for_each([&](Context& context) {
      auto found = context.heap().find(pointer);
      if (found && found->begin == pointer) owner = &context;
    });
    require(known || owner != nullptr, CUDA_ERROR_INVALID_VALUE);
    submit(stream, {CU_GRAPH_NODE_TYPE_MEM_FREE, [pointer](Context& context) {
                      bool freed = context.heap().free(pointer);
                      driver().pools.for_each([&](Pool& pool) { freed = freed || pool.heap.free(pointer); });
                      return freed ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
                    }});
  });
}

}  // namespace

#undef cuMemAllocAsync
#undef cuMemAllocFromPoolAsync
#undef cuMemFreeAsync

extern "C" {

SIMGPU_BOTH(cuMemAllocAsync, _ptsz, allocate, (CUdeviceptr * o, std::size_t n, CUstream s), o, n, s)
SIMGPU_BOTH(cuMemAllocFromPoolAsync, _ptsz, allocate_from,
            (CUdeviceptr * o, std::size_t n, CUmemoryPool p, CUstream s), o, n, p, s)
SIMGPU_BOTH(cuMemFreeAsync, _ptsz, free_memory, (CUdeviceptr p, CUstream s), p, s)

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
  return call("cuDeviceGetDefaultMemPool", Needs::init, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    *out = handle_of(driver().gpu(device).default_pool);
  });
}

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
  return call("cuDeviceGetMemPool", Needs::init, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    Gpu& gpu = driver().gpu(device);
    std::lock_guard lock(driver().mutex);
    *out = handle_of(gpu.current_pool);
  });
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
  return call("cuDeviceSetMemPool", Needs::init, [&] {
    Gpu& gpu = driver().gpu(device);
    auto pool = find_pool(handle);
    std::lock_guard lock(driver().mutex);
    gpu.current_pool = pool;
  });
}

CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  return call("cuDeviceGetGraphMemAttribute", Needs::init, [&] {
    require(value != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto put = [&](Bytes size) { std::memcpy(value, &size.count, sizeof size.count); };
    const GraphMemory::Statistics now = driver().graph_memory->statistics(driver().gpu(device).number);
    switch (attribute) {
      case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        return put(now.used);
      case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        return put(now.used_high);
      case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        return put(now.reserved);
      case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        return put(now.reserved_high);
      default:
        throw Error{CUDA_ERROR_INVALID_VALUE};
    }
  });
}

CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice device) {
  return call("cuDeviceGraphMemTrim", Needs::init,
              [&] { driver().graph_memory->trim(driver().gpu(device).number); });
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* properties) {
  return call("cuMemPoolCreate", Needs::device, [&] {
    require(out != nullptr && properties != nullptr, CUDA_ERROR_INVALID_VALUE);
    require(properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
    auto pool = std::make_shared<Pool>(*driver().space, *driver().gpu(properties->location.id).store);
    driver().pools.add(pool);
    *out = handle_of(pool);
  });
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool handle) {
  return call("cuMemPoolDestroy", Needs::init, [&] {
    auto pool = find_pool(handle);
    Driver& d = driver();
    {
      std::lock_guard lock(d.mutex);
      for (auto& gpu : d.gpus) {
        require(pool != gpu->default_pool, CUDA_ERROR_INVALID_VALUE);
        if (gpu->current_pool == pool) gpu->current_pool = gpu->default_pool;
      }
    }
    pool->destroyed = true;
    pool->heap.set_threshold({});
    pool->heap.trim({});
  });
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool handle, std::size_t keep) {
  return call("cuMemPoolTrimTo", Needs::init, [&] { find_pool(handle)->heap.trim({keep}); });
}

CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* descriptions,
                                    std::size_t count) {
  return call("cuMemPoolSetAccess", Needs::init, [&] {
    require(descriptions != nullptr && count > 0, CUDA_ERROR_INVALID_VALUE);
    auto pool = find_pool(handle);
    for (std::size_t i = 0; i < count; ++i)
      pool->heap.set_access(gpu_of(descriptions[i].location).number, access_of(descriptions[i].flags));
  });
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  return call("cuMemPoolSetAttribute", Needs::init, [&] {
    require(value != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto pool = find_pool(handle);
    cuuint64_t number = 0;
    switch (attribute) {
      case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        std::memcpy(&number, value, sizeof number);
        pool->heap.set_threshold({number});
        return;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return pool->heap.reset_reserved_high();
      case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return pool->heap.reset_used_high();
      default:
        return;
    }
  });
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  return call("cuMemPoolGetAttribute", Needs::init, [&] {
    require(value != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto pool = find_pool(handle);
    auto put = [&](auto number) { std::memcpy(value, &number, sizeof number); };
    switch (attribute) {
      case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return put(cuuint64_t{pool->heap.threshold().count});
      case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return put(cuuint64_t{pool->heap.reserved().count});
      case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return put(cuuint64_t{pool->heap.reserved_high().count});
      case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return put(cuuint64_t{pool->heap.used().count});
      case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return put(cuuint64_t{pool->heap.used_high().count});
      default:
        return put(1);  // the pool's reuse policies are on
    }
  });
}

}  // extern "C"
