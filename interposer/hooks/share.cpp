// SPDX-License-Identifier: Apache-2.0
// Functions that let a network card or a multicast object access device memory. The card or object keeps the
// physical addresses of the memory, so the memory is pinned in place first. Without sharedgpu, the driver
// refuses some of these calls for memory of cuMemAlloc. The interposer refuses them, too, although the driver
// would accept the interposer's memory.
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

// Pins a range in place. The end of the range may lie up to a host page beyond the allocation, since programs
// round the size up to whole host pages, as the driver requires.
CUresult settle_pages(const Place& place, CUdeviceptr address, std::size_t size) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t left = place.range.base + place.range.size.count - address;
  if (size > (left + page - 1) / page * page) return CUDA_ERROR_INVALID_VALUE;
  return hooks::settle(place, address, {std::min<std::uint64_t>(size, left)});
}

// The driver supports CU_POINTER_ATTRIBUTE_SYNC_MEMOPS only for memory from the driver's own cuMemAlloc. This
// function sets a flag of the context instead, which has the same effect for all memory of the context.
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

// A program that sets CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is about to register the memory with a network card
// without the driver's knowledge, through nvidia-peermem or GDRCopy.
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
