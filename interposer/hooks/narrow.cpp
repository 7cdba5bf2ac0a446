// SPDX-License-Identifier: Apache-2.0
// The first versions of functions, with 32-bit addresses and sizes. Programs that look up names without a
// version get these functions. The functions that allocate return the driver's own memory, since only the
// driver can place memory below 4 GiB.
#include <algorithm>
#include <limits>

#include "interposer/hooks/export.h"
#include "interposer/hooks/native.h"

using namespace sharedgpu;
using hooks::Pinned;

namespace {

unsigned int narrowed(Bytes size) {
  return static_cast<unsigned int>(
      std::min<std::uint64_t>(size.count, std::numeric_limits<unsigned int>::max()));
}

}  // namespace

SHAREDGPU_EXPORT CUresult cuMemAlloc(CUdeviceptr_v1* address, unsigned int size) {
  return hooks::allocate_native(Pinned::Kind::pointer, address, {size},
                                [=] { return SHAREDGPU_REAL(cuMemAlloc, address, size); });
}

SHAREDGPU_EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1* address, unsigned int* pitch, unsigned int width,
                                          unsigned int height, unsigned int element) {
  // The pitch is known only after the allocation; the driver aligns rows to 512 bytes at most.
  constexpr std::uint64_t kAlignment = 512;
  std::uint64_t row = (std::uint64_t{width} + kAlignment - 1) / kAlignment * kAlignment;
  return hooks::allocate_native(Pinned::Kind::pointer, address, {row * height}, [=] {
    return SHAREDGPU_REAL(cuMemAllocPitch, address, pitch, width, height, element);
  });
}

SHAREDGPU_EXPORT CUresult cuMemFree(CUdeviceptr_v1 address) {
  return hooks::free_native(Pinned::Kind::pointer, CUdeviceptr{address},
                            [=] { return SHAREDGPU_REAL(cuMemFree, address); });
}

// The driver's result for a size that needs more than 32 bits is undocumented. This function returns the
// largest 32-bit value for such a size.
SHAREDGPU_EXPORT CUresult cuMemGetInfo(unsigned int* free, unsigned int* total) {
  CUresult result = SHAREDGPU_REAL(cuMemGetInfo, free, total);
  auto* own = result == CUDA_SUCCESS ? process::current_session() : nullptr;
  if (own == nullptr) return result;
  const MemoryView view = own->view();
  if (free != nullptr) *free = narrowed(view.free);
  if (total != nullptr) *total = narrowed(view.total);
  return CUDA_SUCCESS;
}

SHAREDGPU_EXPORT CUresult cuDeviceTotalMem(unsigned int* bytes, CUdevice device) {
  CUresult result = SHAREDGPU_REAL(cuDeviceTotalMem, bytes, device);
  if (result != CUDA_SUCCESS) return result;
  if (Process* mine = Process::get()) mine->attach_only_device();
  if (const auto* own = process::session_of(device)) *bytes = narrowed(own->capacity());
  return CUDA_SUCCESS;
}
