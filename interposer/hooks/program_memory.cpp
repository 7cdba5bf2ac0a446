// SPDX-License-Identifier: Apache-2.0
// cuMemCreate and related functions: memory that the program itself creates, maps and makes accessible. On
// managed devices, memory of supported kinds is swapped like any other memory, and the program gets handles
// of our own for it. The driver allocates all other memory. On managed devices, this memory counts as pinned
// (own_handles.h). An address range may contain memory of both kinds.
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "interposer/driver/call.h"
#include "interposer/gate/gate.h"
#include "interposer/hooks/export.h"
#include "interposer/hooks/own_handles.h"
#include "interposer/hooks/program_memory.h"
#include "interposer/hooks/settle.h"
#include "interposer/process/process.h"

#if CUDA_VERSION < 12010
extern "C" CUresult cuMulticastBindMem(CUmemGenericAllocationHandle, std::size_t,
                                       CUmemGenericAllocationHandle, std::size_t, std::size_t,
                                       unsigned long long);
#endif

using namespace sharedgpu;

namespace {

// Calls `ask` for each device's memory until `ask` returns a value, and returns this value.
template <class Ask>
auto first_answer(Ask ask) -> decltype(ask(std::declval<ProgramMemory&>())) {
  for (Memory* memory : process::memories())
    if (ProgramMemory* program = memory->program_memory())
      if (auto answer = ask(*program)) return answer;
  return std::nullopt;
}

// --- Addresses ---

// The address ranges that the program has reserved. A mapping of memory that is not on the GPU is checked
// against these ranges, since the driver cannot check it.
class Reservations {
 public:
  void add(CUdeviceptr base, std::size_t size) {
    std::lock_guard lock(mutex_);
    all_[base] = size;
  }
  void remove(CUdeviceptr base) {
    std::lock_guard lock(mutex_);
    all_.erase(base);
  }
  bool contains(CUdeviceptr address, std::size_t size) const {
    std::lock_guard lock(mutex_);
    auto after = all_.upper_bound(address);
    if (after == all_.begin()) return false;
    const auto& [base, length] = *std::prev(after);
    return address - base <= length && size <= length - (address - base);
  }

 private:
  mutable std::mutex mutex_;
  std::map<CUdeviceptr, std::size_t> all_;
};

Reservations& reservations() {
  static auto* made = new Reservations;
  return *made;
}

struct Part {
  ProgramMemory* program = nullptr;  // null if the part is not memory of the interposer
  CUdeviceptr address = 0;
  std::size_t size = 0;
};

// Cuts a range into whole mappings that the interposer has made, and the parts between these mappings.
// Returns an empty list if the range is empty, or if an end of the range lies inside one of the interposer's
// mappings.
std::vector<Part> parts_of(CUdeviceptr address, std::size_t size) {
  std::vector<Part> parts;
  while (size != 0) {
    Part found{.program = nullptr, .address = address + size, .size = 0};
    for (Memory* memory : process::memories()) {
      ProgramMemory* program = memory->program_memory();
      auto mapping = program != nullptr ? program->next(address, {size}) : std::nullopt;
      if (mapping && mapping->address < found.address)
        found = {program, mapping->address, mapping->size.count};
    }
    if (found.address < address || found.size > address + size - found.address) return {};
    if (found.address > address) parts.push_back({nullptr, address, found.address - address});
    if (found.program != nullptr) parts.push_back(found);
    size -= found.address + found.size - address;
    address = found.address + found.size;
  }
  return parts;
}

bool has_ours(const std::vector<Part>& parts) {
  return parts.empty() ||
         std::ranges::any_of(parts, [](const Part& part) { return part.program != nullptr; });
}

// --- Kinds ---

// Checks that the driver can create memory of this kind at all. Without this check, memory of an unsupported
// kind could seem to be created while the GPU has no free memory. The error would come only later, when the
// program cannot handle it. Does not ask the driver again about a combination of handle types that it
// supports.
CUresult try_kind(const CUmemAllocationProp& wanted, std::size_t granularity) {
  static constinit std::atomic<std::uint64_t> known{0};  // one bit for each combination of handle types
  const auto types = static_cast<unsigned>(wanted.requestedHandleTypes);
  const std::uint64_t bit = types < 64 ? 1ull << types : 0;
  if ((known.load(std::memory_order_relaxed) & bit) != 0) return CUDA_SUCCESS;
  CUmemGenericAllocationHandle handle = 0;
  gate::Pass pass;
  CUresult result = SHAREDGPU_REAL(cuMemCreate, &handle, granularity, &wanted, 0);
  if (result == CUDA_SUCCESS) SHAREDGPU_REAL(cuMemRelease, handle);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) result = CUDA_SUCCESS;  // the kind is supported
  if (result == CUDA_SUCCESS) known.fetch_or(bit, std::memory_order_relaxed);
  return result;
}

bool can_be_ours(const CUmemAllocationProp& wanted, unsigned long long flags) {
  return wanted.type == CU_MEM_ALLOCATION_TYPE_PINNED && flags == 0 &&
         wanted.allocFlags.compressionType == CU_MEM_ALLOCATION_COMP_NONE && wanted.allocFlags.usage == 0 &&
         wanted.win32HandleMetaData == nullptr;
}

// Pins the memory in place. The handle is used as an address, and the byte at this address stands for the
// whole memory.
std::optional<CUresult> settle(CUmemGenericAllocationHandle handle, CUmemGenericAllocationHandle* real) {
  for (Memory* memory : process::memories()) {
    ProgramMemory* const program = memory->program_memory();
    if (program == nullptr || !program->properties(handle)) continue;
    return hooks::settle_with(*memory, handle, {1}, [=] {
      return program->settle(handle, real).value_or(CUDA_ERROR_INVALID_VALUE);
    });
  }
  return std::nullopt;
}

// Calls `call` with the driver's handle in place of the interposer's handle.
template <class Call>
CUresult with_real(CUmemGenericAllocationHandle handle, Call call) {
  CUmemGenericAllocationHandle real = 0;
  auto settled = settle(handle, &real);
  if (!settled) return call(handle);
  if (*settled != CUDA_SUCCESS) return *settled;
  CUresult result = call(real);
  SHAREDGPU_REAL(cuMemRelease, real);
  return result;
}

}  // namespace

namespace sharedgpu::hooks {

std::optional<AddressRange> program_mapping(CUdeviceptr address) {
  auto found = first_answer([=](ProgramMemory& program) { return program.next(address, {1}); });
  if (!found) return std::nullopt;
  return AddressRange{found->address, found->size};
}

}  // namespace sharedgpu::hooks

SHAREDGPU_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t size, std::size_t alignment,
                                              CUdeviceptr hint, unsigned long long flags) {
  CUresult result = SHAREDGPU_REAL(cuMemAddressReserve, address, size, alignment, hint, flags);
  if (result == CUDA_SUCCESS) reservations().add(*address, size);
  return result;
}

SHAREDGPU_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, std::size_t size) {
  // CUDA refuses to free a range with mappings, but the driver does not know of memory that is mapped here
  // and evicted now.
  if (size != 0 && first_answer([=](ProgramMemory& program) { return program.next(address, {size}); }))
    return CUDA_ERROR_INVALID_VALUE;
  reservations().remove(address);  // not after the driver's free, since another thread may get the same
                                   // addresses immediately
  CUresult result = SHAREDGPU_REAL(cuMemAddressFree, address, size);
  if (result != CUDA_SUCCESS) reservations().add(address, size);
  return result;
}

SHAREDGPU_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t size,
                                      const CUmemAllocationProp* wanted, unsigned long long flags) {
  const bool here = handle != nullptr && wanted != nullptr &&
                    wanted->location.type == CU_MEM_LOCATION_TYPE_DEVICE && can_be_ours(*wanted, flags);
  Memory* memory = here ? process::memory_of(wanted->location.id) : nullptr;
  ProgramMemory* program = memory != nullptr ? memory->program_memory() : nullptr;
  std::size_t granularity = 0;
  if (program == nullptr ||
      SHAREDGPU_REAL(cuMemGetAllocationGranularity, &granularity, wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
          CUDA_SUCCESS ||
      size == 0 || Bytes{size} > kLargestAllocation || granularity == 0 || size % granularity != 0)
    return hooks::create_pinned(handle, size, wanted, flags);
  if (CUresult refused = try_kind(*wanted, granularity); refused != CUDA_SUCCESS) return refused;
  return program->create(handle, {size}, *wanted);
}

SHAREDGPU_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  auto result = first_answer([=](ProgramMemory& program) { return program.release(handle); });
  return result ? *result : hooks::release_pinned(handle);
}

SHAREDGPU_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* pointer) {
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  auto ours = handle != nullptr
                  ? first_answer([=](ProgramMemory& program) { return program.retain(address); })
                  : std::nullopt;
  if (!ours) return hooks::retain_pinned(handle, pointer);
  *handle = *ours;
  return CUDA_SUCCESS;
}

SHAREDGPU_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                                 CUmemGenericAllocationHandle handle) {
  auto ours = properties != nullptr
                  ? first_answer([=](ProgramMemory& program) { return program.properties(handle); })
                  : std::nullopt;
  if (!ours) return SHAREDGPU_REAL(cuMemGetAllocationPropertiesFromHandle, properties, handle);
  *properties = *ours;
  return CUDA_SUCCESS;
}

SHAREDGPU_EXPORT CUresult cuMemMap(CUdeviceptr address, std::size_t size, std::size_t offset,
                                   CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const bool possible = offset == 0 && flags == 0 && size != 0 && reservations().contains(address, size);
  auto result = first_answer([=](ProgramMemory& program) -> std::optional<CUresult> {
    if (!possible && program.properties(handle))
      return offset != 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    return possible ? program.map(address, {size}, handle) : std::nullopt;
  });
  return result ? *result : hooks::map_pinned(address, size, offset, handle, flags);
}

SHAREDGPU_EXPORT CUresult cuMemUnmap(CUdeviceptr address, std::size_t size) {
  const std::vector<Part> parts = parts_of(address, size);
  if (size == 0 || !has_ours(parts)) return hooks::unmap_pinned(address, size);
  if (parts.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (const Part& part : parts) {
    CUresult result = part.program != nullptr ? part.program->unmap(part.address)
                                              : hooks::unmap_pinned(part.address, part.size);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

SHAREDGPU_EXPORT CUresult cuMemSetAccess(CUdeviceptr address, std::size_t size, const CUmemAccessDesc* access,
                                         std::size_t count) {
  const std::vector<Part> parts = parts_of(address, size);
  if (size == 0 || access == nullptr || count == 0 || !has_ours(parts))
    return SHAREDGPU_REAL(cuMemSetAccess, address, size, access, count);
  if (parts.empty()) return CUDA_ERROR_INVALID_VALUE;
  int devices = 0;
  SHAREDGPU_REAL(cuDeviceGetCount, &devices);
  for (std::size_t i = 0; i < count; ++i)  // for memory that is not on the GPU, the driver checks `access`
                                           // only later, when the memory is on the GPU again
    if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        (access[i].location.id < 0 || access[i].location.id >= devices))
      return CUDA_ERROR_INVALID_DEVICE;
  for (const Part& part : parts) {
    CUresult result = part.program != nullptr
                          ? part.program->set_access(part.address, access, count)
                          : SHAREDGPU_REAL(cuMemSetAccess, part.address, part.size, access, count);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

SHAREDGPU_EXPORT CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                                         CUdeviceptr address) {
  if (!hooks::program_mapping(address)) return SHAREDGPU_REAL(cuMemGetAccess, flags, location, address);
  gate::Pass pass;  // the thread is inside the gate, so the memory is on the GPU
  return SHAREDGPU_REAL(cuMemGetAccess, flags, location, address);
}

SHAREDGPU_EXPORT CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                                       CUmemAllocationHandleType type,
                                                       unsigned long long flags) {
  return with_real(handle, [=](CUmemGenericAllocationHandle real) {
    return SHAREDGPU_REAL(cuMemExportToShareableHandle, shareable, real, type, flags);
  });
}

SHAREDGPU_EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, std::size_t offset,
                                             CUmemGenericAllocationHandle handle, std::size_t handle_offset,
                                             std::size_t size, unsigned long long flags) {
  return with_real(handle, [=](CUmemGenericAllocationHandle real) {
    return SHAREDGPU_REAL(cuMulticastBindMem, object, offset, real, handle_offset, size, flags);
  });
}
