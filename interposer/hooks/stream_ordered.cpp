// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory. Memory from an ordinary device pool is swapped like memory from cuMemAlloc. The
// driver serves pools that can be shared with other processes, and their memory counts as pinned. Memory that
// is allocated during a capture belongs to the graph.
#include "interposer/driver/call.h"
#include "interposer/gate/gate.h"
#include "interposer/hooks/allocate.h"
#include "interposer/hooks/export.h"
#include "interposer/hooks/graph_memory.h"
#include "interposer/hooks/native.h"
#include "interposer/hooks/peer.h"
#include "interposer/hooks/pools.h"
#include "interposer/process/process.h"

using namespace sharedgpu;
using backlog::per_thread;
using hooks::Pools;
using hooks::pools;

namespace {

template <class Call>
CUresult gated(Call real) {
  gate::Pass pass;
  return real();
}

// If `pool` is null, allocates from the current pool of the stream's device.
template <class Call>
CUresult allocate(CUdeviceptr* address, std::size_t size, CUmemoryPool pool, CUstream stream, Call real) {
  // For invalid arguments, calls the driver, which returns the error.
  if (process::memories().empty() || address == nullptr || size == 0) return gated(real);
  if (backlog::captured(stream)) {
    hooks::graph_memory::note_node({size});
    return gated(real);
  }
  const auto place = backlog::locate(stream);
  if (!place) return gated(real);
  if (pool == nullptr && SHAREDGPU_REAL(cuDeviceGetMemPool, &pool, place->device) != CUDA_SUCCESS)
    return gated(real);
  switch (pools().kind(pool, place->device)) {
    case Pools::Kind::swapped:
      if (CUresult error = hooks::sticky_error(place->stream); error != CUDA_SUCCESS) return error;
      return pools().allocate(address, {size}, pool, *place);
    case Pools::Kind::pinned:
      return pools().allocate_pinned(address, {size}, pool, [&] { return gated(real); });
    default:
      return gated(real);
  }
}

template <class Call>
CUresult free(CUdeviceptr address, CUstream stream, Call real) {
  if (process::memories().empty() || backlog::captured(stream)) return gated(real);
  if (pools().holds(address)) {
    const auto place = backlog::locate(stream);
    return place ? pools().free(address, *place) : gated(real);
  }
  // The program may free memory of cuMemAlloc in stream order. free_ours() waits for the GPU instead. It
  // frees the memory later than a free in stream order would, which CUDA permits.
  if (auto result = hooks::free_ours(address)) return *result;
  return pools().free_pinned(address, [&] { return gated(real); });
}

}  // namespace

SHAREDGPU_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* address, std::size_t size, CUstream stream) {
  return allocate(address, size, nullptr, stream,
                  [=] { return SHAREDGPU_REAL(cuMemAllocAsync, address, size, stream); });
}

SHAREDGPU_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address, std::size_t size, CUstream stream) {
  return allocate(address, size, nullptr, per_thread(stream),
                  [=] { return SHAREDGPU_REAL(cuMemAllocAsync_ptsz, address, size, stream); });
}

SHAREDGPU_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, std::size_t size, CUmemoryPool pool,
                                                  CUstream stream) {
  auto real = [=] { return SHAREDGPU_REAL(cuMemAllocFromPoolAsync, address, size, pool, stream); };
  return pool == nullptr ? gated(real) : allocate(address, size, pool, stream, real);
}

SHAREDGPU_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address, std::size_t size,
                                                       CUmemoryPool pool, CUstream stream) {
  auto real = [=] { return SHAREDGPU_REAL(cuMemAllocFromPoolAsync_ptsz, address, size, pool, stream); };
  return pool == nullptr ? gated(real) : allocate(address, size, pool, per_thread(stream), real);
}

SHAREDGPU_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return free(address, stream, [=] { return SHAREDGPU_REAL(cuMemFreeAsync, address, stream); });
}

SHAREDGPU_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  return free(address, per_thread(stream),
              [=] { return SHAREDGPU_REAL(cuMemFreeAsync_ptsz, address, stream); });
}

SHAREDGPU_EXPORT CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  const CUresult result = SHAREDGPU_REAL(cuMemPoolCreate, pool, properties);
  if (result == CUDA_SUCCESS) pools().created(*pool, *properties);
  return result;
}

SHAREDGPU_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  auto real = [=] { return SHAREDGPU_REAL(cuMemPoolDestroy, pool); };
  // The child of a fork takes no lock here, since a lock that a thread of the parent held is never released
  // in the child. The driver refuses the child's call.
  if (!process::memories().empty()) return pools().destroy(pool, real);
  const CUresult result = real();
  return result == CUDA_SUCCESS ? pools().destroy(pool, [] { return CUDA_SUCCESS; }) : result;
}

SHAREDGPU_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, std::size_t keep) {
  const CUresult result = SHAREDGPU_REAL(cuMemPoolTrimTo, pool, keep);
  if (result == CUDA_SUCCESS) pools().trim(pool, {keep});
  return result;
}

// Each device that gets access to the pool also gets access to all other swappable memory of the pool's
// device. If a location that gets access is not a device that sharedgpu manages, the driver serves all later
// allocations from the pool.
SHAREDGPU_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* access,
                                             std::size_t count) {
  const CUresult result = SHAREDGPU_REAL(cuMemPoolSetAccess, pool, access, count);
  const auto owner = result == CUDA_SUCCESS ? pools().device_of_swapped(pool) : std::nullopt;
  if (!owner) return result;
  for (std::size_t i = 0; i < count; ++i) {
    const CUmemLocation& who = access[i].location;
    const bool device = who.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || (device && who.id == *owner)) continue;
    if (device) hooks::open_to_peer(who.id, *owner);
    if (!device || process::memory_of(who.id) == nullptr) pools().leave_to_driver(pool);
  }
  return result;
}

SHAREDGPU_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                                void* value) {
  const CUresult result = SHAREDGPU_REAL(cuMemPoolSetAttribute, pool, attribute, value);
  if (result != CUDA_SUCCESS) return result;
  pools().tend();  // before a reset, since the new high-water mark must not include the memory that tend()
                   // releases
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) pools().reset_reserved_high(pool);
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) pools().reset_used_high(pool);
  return result;
}

// Adds the statistics of the interposer's blocks in the pool to the driver's statistics. The driver's
// statistics cover the blocks that the driver has allocated itself.
SHAREDGPU_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                                void* value) {
  const CUresult result = SHAREDGPU_REAL(cuMemPoolGetAttribute, pool, attribute, value);
  if (result != CUDA_SUCCESS) return result;
  pools().tend();
  const auto ours = pools().statistics(pool);
  if (!ours) return result;
  auto add = [value](Bytes part) { *static_cast<cuuint64_t*>(value) += part.count; };
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) add(ours->reserved);
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) add(ours->reserved_high);
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT) add(ours->used);
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) add(ours->used_high);
  return result;
}
