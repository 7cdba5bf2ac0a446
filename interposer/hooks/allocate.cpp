// SPDX-License-Identifier: Apache-2.0
// Device memory. cuMemAlloc's memory comes from the session's backend. Managed memory that the program
// requests itself is the driver's, counted as pinned.
#include "interposer/hooks/allocate.h"

#include "interposer/gate/captures.h"
#include "interposer/hooks/export.h"
#include "interposer/hooks/holdings.h"
#include "interposer/hooks/native.h"
#include "interposer/hooks/pools.h"

using namespace sharedgpu;
using hooks::Pinned;

namespace {

// The alignment of rows by cuMemAllocPitch, which is the same on every GPU known so far.
constexpr std::size_t kPitch = 512;

// If the arbiter refuses to count managed memory, half of the amount is requested, and so on. When an amount
// of at most this size is refused, nothing is counted.
constexpr Bytes kLeastManaged = mebibytes(2);

// Returns true if a capture forbids this thread to allocate and to free. The capture is then invalid, as
// after the program's own call. Only the driver knows the modes and threads of captures. So the function asks
// the driver to free a null address: if a capture forbids freeing, the driver refuses this call, too
// (measured).
bool forbidden_in_capture() {
  return gate::capturing() && SHAREDGPU_REAL(cuMemFree_v2, 0) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult allocate(Allocator& memory, CUdeviceptr* address, Bytes size) {
  if (forbidden_in_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  CUresult result = hooks::sticky_error(CU_STREAM_LEGACY);
  if (result != CUDA_SUCCESS) return result;
  result = memory.allocate(address, size);
  // If memory is short, the pools release the memory that they do not use.
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
  // For invalid arguments, the driver itself returns the error.
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
  // For invalid arguments, the driver itself returns the error.
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
  // CUDA requires that no work uses stream-ordered memory when cuMemFree frees it.
  if (hooks::pools().holds(address)) return hooks::pools().free_unused(address);
  if (auto result = hooks::free_ours(address)) return *result;
  return hooks::pools().free_pinned(address,
                                    [&] { return hooks::free_native(Pinned::Kind::pointer, address, real); });
}

// Managed memory may exceed the device memory, so the interposer never refuses the program's request. It
// counts only as much as the arbiter grants.
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
