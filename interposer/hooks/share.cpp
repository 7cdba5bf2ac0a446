// SPDX-License-Identifier: Apache-2.0
// Ways to hand device memory to others: a network card, a multicast object. They keep the physical memory of
// an address range, so it is settled first. What plain CUDA refuses for memory of cuMemAlloc is refused here
// too, though the driver would take ours.
#include <unistd.h>

#include <algorithm>

#include "interposer/driver/call.h"
#include "interposer/hooks/export.h"
#include "interposer/hooks/holdings.h"
#include "interposer/hooks/program_memory.h"
#include "interposer/hooks/settle.h"
#include "interposer/process/process.h"

#if CUDA_VERSION < 12010
extern "C" CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle, std::size_t, CUdeviceptr, std::size_t,
                                        unsigned long long);
extern "C" CUresult cuCtxSetFlags(unsigned int);
#endif

using namespace sharedgpu;

namespace {

constexpr unsigned kSyncMemops = 0x80;  // CU_CTX_SYNC_MEMOPS, of CUDA 12.1

// Programs round up to whole pages of the host, as the driver wants it.
CUresult settle_pages(const Place& place, CUdeviceptr address, std::size_t size) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t left = place.range.base + place.range.size.count - address;
  if (size > (left + page - 1) / page * page) return CUDA_ERROR_INVALID_VALUE;
  return hooks::settle(place, address, {std::min<std::uint64_t>(size, left)});
}

// The driver has this for its own cuMemAlloc only; for all memory of a context it has a flag.
CUresult synchronize_memops_of_context() {
  unsigned flags = 0;
  if (CUresult result = SHAREDGPU_REAL(cuCtxGetFlags, &flags); result != CUDA_SUCCESS) return result;
  return (flags & kSyncMemops) != 0 ? CUDA_SUCCESS : SHAREDGPU_REAL(cuCtxSetFlags, flags | kSyncMemops);
}

}  // namespace

SHAREDGPU_EXPORT CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address, std::size_t size,
                                                        CUmemRangeHandleType type, unsigned long long flags) {
  if (size != 0) {
    const auto block = hooks::allocation_at(address);
    CUresult refused = block ? settle_pages(*block, address, size) : hooks::settle_mappings(address, {size});
    if (refused != CUDA_SUCCESS) return refused;
  }
  return SHAREDGPU_REAL(cuMemGetHandleForAddressRange, handle, address, size, type, flags);
}

SHAREDGPU_EXPORT CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, std::size_t offset,
                                              CUdeviceptr address, std::size_t size,
                                              unsigned long long flags) {
  if (hooks::allocation_at(address)) return CUDA_ERROR_INVALID_VALUE;
  return SHAREDGPU_REAL(cuMulticastBindAddr, object, offset, address, size, flags);
}

// Who sets CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is about to register the memory with a network card behind the
// driver's back, by nvidia-peermem or GDRCopy.
SHAREDGPU_EXPORT CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                                                CUdeviceptr address) {
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
    return SHAREDGPU_REAL(cuPointerSetAttribute, value, attribute, address);
  const bool on = *static_cast<const unsigned*>(value) != 0;
  const auto block = hooks::allocation_at(address);
  const auto mapping = block ? std::nullopt : hooks::program_mapping(address);
  CUresult result = CUDA_SUCCESS;
  if (on && block) result = hooks::settle(*block);
  if (on && mapping) result = hooks::settle_mappings(mapping->base, mapping->size);
  if (result != CUDA_SUCCESS) return result;
  result = SHAREDGPU_REAL(cuPointerSetAttribute, value, attribute, address);
  if (!block) return result;
  if (result != CUDA_ERROR_NOT_SUPPORTED) return result;
  if (on && synchronize_memops_of_context() != CUDA_SUCCESS) return result;
  hooks::allocations().set_sync_memops(block->range.base, on);
  return CUDA_SUCCESS;
}
