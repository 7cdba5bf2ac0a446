// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/own_handles.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "interposer/hooks/native.h"
#include "interposer/hooks/own_memory.h"

namespace sharedgpu::hooks {
namespace {

// The mutex is held over the driver's call and the accounting of the call, since the driver may give a freed
// handle or address to another thread immediately.
struct Own {
  std::mutex mutex;
  // Each key is the accounting of a device, which counts the memory. Host memory that the program creates is
  // counted with the first device.
  std::map<Pinning*, OwnMemory> memories;
  std::map<Pinning*, OwnMemory> hosts;
};
Own& own() {
  static auto* made = new Own;
  return *made;
}

// Calls `real`. If `real` succeeds, calls `enter` once with each device's reference counts of device memory,
// and once with each device's reference counts of host memory. `enter` returns how much of this memory has
// been freed by `real`.
template <class Call, class Enter>
CUresult own_call(Call real, Enter enter) {
  if (process::memories().empty()) return real();
  std::vector<std::pair<Pinning*, Bytes>> gone;
  std::vector<std::pair<Pinning*, Bytes>> gone_from_host;
  CUresult result;
  {
    std::lock_guard lock(own().mutex);
    result = real();
    if (result != CUDA_SUCCESS) return result;
    for (auto& [memory, books] : own().memories) gone.emplace_back(memory, enter(books));
    for (auto& [memory, books] : own().hosts) gone_from_host.emplace_back(memory, enter(books));
  }
  for (const auto& [memory, size] : gone)
    if (size != Bytes{}) memory->unpin(size);
  for (const auto& [memory, size] : gone_from_host)
    if (size != Bytes{}) memory->give_host(size);
  return result;
}

template <class Call>
CUresult create_on_host(Pinning& memory, CUmemGenericAllocationHandle* handle, Bytes size, Call real) {
  if (CUresult refused = memory.take_host(size); refused != CUDA_SUCCESS) return refused;
  CUresult result;
  {
    gate::Pass pass;
    std::lock_guard lock(own().mutex);
    result = real();
    if (result == CUDA_SUCCESS) own().hosts[&memory].created(*handle, size);
  }
  if (result != CUDA_SUCCESS) memory.give_host(size);
  return result;
}

}  // namespace

CUresult create_pinned(CUmemGenericAllocationHandle* handle, std::size_t size,
                       const CUmemAllocationProp* wanted, unsigned long long flags) {
  auto real = [=] { return SHAREDGPU_REAL(cuMemCreate, handle, size, wanted, flags); };
  // For invalid arguments, the driver itself returns the error.
  if (wanted == nullptr || handle == nullptr || Bytes{size} > kLargestAllocation) return real();
  if (wanted->location.type != CU_MEM_LOCATION_TYPE_DEVICE && !process::memories().empty())
    return create_on_host(*process::memories().front(), handle, {size}, real);
  Pinning* memory = process::memory_of(wanted->location.id);
  if (memory == nullptr) return real();  // an unmanaged device
  if (CUresult refused = memory->pin({size}); refused != CUDA_SUCCESS) return refused;
  hooks::Patience patience;
  CUresult result;
  do {
    gate::Pass pass;
    std::lock_guard lock(own().mutex);
    result = real();
    if (result == CUDA_SUCCESS) own().memories[memory].created(*handle, {size});
  } while (patience.worth_another_try(result));
  if (result != CUDA_SUCCESS) memory->unpin({size});
  return result;
}

CUresult release_pinned(CUmemGenericAllocationHandle handle) {
  return own_call([=] { return SHAREDGPU_REAL(cuMemRelease, handle); },
                  [=](OwnMemory& all) { return all.released(handle); });
}

CUresult map_pinned(CUdeviceptr address, std::size_t size, std::size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return own_call([=] { return SHAREDGPU_REAL(cuMemMap, address, size, offset, handle, flags); },
                  [=](OwnMemory& all) {
                    all.mapped(address, {size}, handle);
                    return Bytes{};
                  });
}

CUresult unmap_pinned(CUdeviceptr address, std::size_t size) {
  return own_call([=] { return SHAREDGPU_REAL(cuMemUnmap, address, size); },
                  [=](OwnMemory& all) { return all.unmapped(address, {size}); });
}

CUresult retain_pinned(CUmemGenericAllocationHandle* handle, void* pointer) {
  // CUDA gives programs no handle of memory that comes from cuMemAlloc.
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  if (process::find(address)) return CUDA_ERROR_INVALID_VALUE;
  return own_call([=] { return SHAREDGPU_REAL(cuMemRetainAllocationHandle, handle, pointer); },
                  [=](OwnMemory& all) {
                    all.retained(*handle, address);
                    return Bytes{};
                  });
}

}  // namespace sharedgpu::hooks
