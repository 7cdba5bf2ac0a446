// SPDX-License-Identifier: Apache-2.0
// Device memory: what cuMemAlloc gives comes from the session's backend; what the program itself asks to be
// managed is the driver's, counted as pinned.
#include "interposer/hooks/allocate.h"

#include "interposer/gate/captures.h"
#include "interposer/hooks/export.h"
#include "interposer/hooks/holdings.h"
#include "interposer/hooks/native.h"
#include "interposer/hooks/pools.h"

using namespace sharedgpu;
using hooks::Pinned;

namespace {

// cuMemAllocPitch's alignment of rows, the same on every GPU so far.
constexpr std::size_t kPitch = 512;

// Less of managed memory is not worth counting where there is no room for more.
constexpr Bytes kLeastManaged = mebibytes(2);

// Whether this is a capture that forbids allocating and freeing: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and
// it is spoiled. The driver alone knows its modes and threads. So it is asked to free nothing, which it
// refuses there as anything else (measured).
bool forbidden_in_capture() {
  return gate::capturing() && SHAREDGPU_REAL(cuMemFree_v2, 0) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult allocate(Allocator& memory, CUdeviceptr* address, Bytes size) {
  if (forbidden_in_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  CUresult result = hooks::sticky_error(CU_STREAM_LEGACY);
  if (result != CUDA_SUCCESS) return result;
  result = memory.allocate(address, size);
  // Where memory is short the pools give up what they do not use.
  if (result == CUDA_ERROR_OUT_OF_MEMORY && hooks::pools().release_all())
    result = memory.allocate(address, size);
  if (result == CUDA_SUCCESS) hooks::allocations().add(*address, hooks::current_context());
  return result;
}

}  // namespace

namespace {

template <class Free>
std::optional<CUresult> free_by(CUdeviceptr address, Free free) {
  const auto origin = hooks::allocations().origin(address);
  for (Allocator* memory : process::memories()) {
    const auto result = free(*memory);
    if (result == CUDA_SUCCESS && origin) hooks::allocations().remove(address, origin->id);
    if (result) return result;
  }
  return std::nullopt;
}

}  // namespace

std::optional<CUresult> hooks::free_ours(CUdeviceptr address) {
  return free_by(address, [=](Allocator& memory) { return memory.free(address); });
}

std::optional<CUresult> hooks::free_finished(CUdeviceptr address) {
  return free_by(address, [=](Allocator& memory) { return memory.free_unused(address); });
}

SHAREDGPU_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t size) {
  Allocator* memory = process::current_memory();
  // The driver's own answer to a wrong call.
  if (memory == nullptr || address == nullptr || size == 0)
    return SHAREDGPU_REAL(cuMemAlloc_v2, address, size);
  return allocate(*memory, address, {size});
}

SHAREDGPU_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* address, std::size_t* pitch, std::size_t width,
                                             std::size_t height, unsigned int element) {
  Allocator* memory = process::current_memory();
  std::size_t row = 0;
  std::size_t size = 0;
  const bool valid = address != nullptr && pitch != nullptr && width != 0 && height != 0 &&
                     (element == 4 || element == 8 || element == 16) &&
                     !__builtin_add_overflow(width, kPitch - 1, &row) &&
                     !__builtin_mul_overflow(row / kPitch * kPitch, height, &size);
  // The driver's own answer to a wrong call.
  if (memory == nullptr || !valid)
    return SHAREDGPU_REAL(cuMemAllocPitch_v2, address, pitch, width, height, element);
  CUresult result = allocate(*memory, address, {size});
  if (result == CUDA_SUCCESS) *pitch = row / kPitch * kPitch;
  return result;
}

SHAREDGPU_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  const auto real = [=] { return SHAREDGPU_REAL(cuMemFree_v2, address); };
  if (process::memories().empty()) return real();
  if (forbidden_in_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  // Of stream-ordered memory CUDA expects that no work uses it any more.
  if (hooks::pools().holds(address)) return hooks::pools().free_unused(address);
  if (auto result = hooks::free_ours(address)) return *result;
  return hooks::pools().free_pinned(address,
                                    [&] { return hooks::free_native(Pinned::Kind::pointer, address, real); });
}

// More of it than there is device memory is legal, so it is never refused: it counts as far as it can be
// resident.
SHAREDGPU_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* address, std::size_t size, unsigned int flags) {
  const CUresult result = [=] {
    gate::Pass pass;
    return SHAREDGPU_REAL(cuMemAllocManaged, address, size, flags);
  }();
  Pinning* memory = process::current_memory();
  if (result != CUDA_SUCCESS || memory == nullptr) return result;
  Bytes part{size};
  while (part != Bytes{} && memory->pin(part) != CUDA_SUCCESS)
    part = part > kLeastManaged ? Bytes{part.count / 2} : Bytes{};
  hooks::pinned().add(Pinned::Kind::pointer, *address, {part, hooks::current_context(), memory});
  return result;
}
