// SPDX-License-Identifier: Apache-2.0
// The program's queries about memory. The answers are consistent. The reported size of the GPU is the
// arbiter's capacity. All memory of the interposer is reported as being on the GPU, even while it is evicted.
#include <cstring>

#include "interposer/driver/call.h"
#include "interposer/gate/gate.h"
#include "interposer/hooks/export.h"
#include "interposer/hooks/graph_memory.h"
#include "interposer/hooks/holdings.h"
#include "interposer/hooks/pools.h"
#include "interposer/hooks/program_memory.h"
#include "interposer/hooks/settle.h"
#include "interposer/process/process.h"

using namespace sharedgpu;

namespace {

template <class Value>
CUresult give(void* data, Value value) {
  std::memcpy(data, &value, sizeof(Value));  // NOLINT(bugprone-sizeof-expression): handles are pointers
  return CUDA_SUCCESS;
}

CUdevice device_of(CUcontext context) {
  CUdevice device = 0;
  if (Process* mine = Process::get()) mine->contexts().device(context, &device);
  return device;
}

// Answers a query about an address of the interposer's memory from the interposer's records. Returns nullopt
// if only the driver knows the answer: the caller must ask the driver while the memory is resident.
std::optional<CUresult> answer(void* data, CUpointer_attribute attribute, CUdeviceptr address,
                               const hooks::Allocation& ours) {
  const AddressRange& range = ours.range;
  auto origin = hooks::allocations().origin(range.base).value_or(hooks::Allocations::Origin{});
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return give(data, origin.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give(data, static_cast<unsigned int>(CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return give(data, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return CUDA_ERROR_INVALID_VALUE;  // the driver returns this error for any device memory
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return give(data, origin.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return give(data, 0u);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return give(data, static_cast<int>(ours.pooled ? ours.pooled->device : device_of(origin.context)));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      if (!origin.sync_memops && !ours.memory->exportable()) return std::nullopt;
      return give(data, static_cast<unsigned int>(origin.sync_memops));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      if (!ours.memory->exportable()) return std::nullopt;
      return give(data, static_cast<unsigned int>(!ours.pooled));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return give(data, range.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return give(data, std::size_t{range.size.count});
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return give(data, 1u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return give(data, 0ull);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return give(data, ours.pooled ? ours.pooled->pool : nullptr);
    default:
      return std::nullopt;
  }
}

// Returns the range that contains this address in memory imported from another process of the tenant; nullopt
// if there is none. The driver knows everything about this memory except its bounds.
std::optional<AddressRange> imported(CUdeviceptr address) {
  Process* mine = Process::get();
  return mine != nullptr ? mine->imports().find(address) : std::nullopt;
}

// Returns true for the attribute that a program queries before it passes the memory to a network card. Such
// memory must be pinned in place.
bool tells_the_place(CUpointer_attribute attribute) { return attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS; }

// The device of memory that the program has created itself.
CUdevice device_of_mapping(CUdeviceptr address) {
  for (const CUdevice device : process::devices()) {
    ProgramMemory* const program = process::memory_of(device)->program_memory();
    if (program != nullptr && program->next(address, {1})) return device;
  }
  return 0;
}

// Answers a query about memory that the program has created itself. The driver knows everything about this
// memory except its bounds, as long as the memory is on the GPU.
CUresult program_attribute(void* data, CUpointer_attribute attribute, CUdeviceptr address,
                           const AddressRange& mapping) {
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) return give(data, mapping.base);
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) return give(data, std::size_t{mapping.size.count});
  // While the memory is away, the driver would report host memory.
  if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
    return give(data, static_cast<unsigned int>(CU_MEMORYTYPE_DEVICE));
  if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
    return give(data, static_cast<int>(device_of_mapping(address)));
  if (tells_the_place(attribute))
    if (CUresult refused = hooks::settle_mappings(mapping.base, mapping.size); refused != CUDA_SUCCESS)
      return refused;
  gate::Pass pass;
  return SHAREDGPU_REAL(cuPointerGetAttribute, data, attribute, address);
}

CUresult pointer_attribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  if (auto mapping = data != nullptr ? hooks::program_mapping(address) : std::nullopt)
    return program_attribute(data, attribute, address, *mapping);
  if (auto found = data != nullptr ? hooks::allocation_at(address) : std::nullopt) {
    if (auto result = answer(data, attribute, address, *found)) return *result;
    if (tells_the_place(attribute))
      if (CUresult refused = hooks::settle(*found); refused != CUDA_SUCCESS) return refused;
    gate::Pass pass;
    return SHAREDGPU_REAL(cuPointerGetAttribute, data, attribute, address);
  }
  if (auto range = data != nullptr ? imported(address) : std::nullopt) {
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) return give(data, range->base);
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) return give(data, std::size_t{range->size.count});
  }
  return SHAREDGPU_REAL(cuPointerGetAttribute, data, attribute, address);
}

}  // namespace

SHAREDGPU_EXPORT CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  // The driver checks the arguments; programs pass null for values that they do not need.
  CUresult result = SHAREDGPU_REAL(cuMemGetInfo_v2, free, total);
  auto* own = result == CUDA_SUCCESS ? process::current_session() : nullptr;
  if (own == nullptr) return result;
  hooks::pools().tend();  // releases unused memory of the pools beyond their release thresholds
  hooks::graph_memory::count();
  const MemoryView view = own->view();
  if (free != nullptr) *free = view.free.count;
  if (total != nullptr) *total = view.total.count;
  return CUDA_SUCCESS;
}

SHAREDGPU_EXPORT CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  CUresult result = SHAREDGPU_REAL(cuDeviceTotalMem_v2, bytes, device);
  if (result != CUDA_SUCCESS) return result;
  if (Process* mine = Process::get()) mine->attach_only_device();
  if (const auto* own = process::session_of(device)) *bytes = own->capacity().count;
  return CUDA_SUCCESS;
}

SHAREDGPU_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* size, CUdeviceptr address) {
  std::optional<AddressRange> range;
  if (auto found = hooks::allocation_at(address))
    range = found->range;
  else
    range = imported(address);
  if (!range) range = hooks::program_mapping(address);
  if (!range) return SHAREDGPU_REAL(cuMemGetAddressRange_v2, base, size, address);
  if (base != nullptr) *base = range->base;
  if (size != nullptr) *size = range->size.count;
  return CUDA_SUCCESS;
}

SHAREDGPU_EXPORT CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                                                CUdeviceptr address) {
  return pointer_attribute(data, attribute, address);
}

SHAREDGPU_EXPORT CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes,
                                                 void** data, CUdeviceptr address) {
  if (attributes == nullptr || data == nullptr ||
      (!hooks::allocation_at(address) && !hooks::program_mapping(address)))
    return SHAREDGPU_REAL(cuPointerGetAttributes, count, attributes, data, address);
  for (unsigned int i = 0; i < count; ++i) {
    if (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
      give(data[i], static_cast<void*>(nullptr));  // cuPointerGetAttribute returns an error for this
                                                   // attribute, but cuPointerGetAttributes does not
    else if (CUresult result = pointer_attribute(data[i], attributes[i], address); result != CUDA_SUCCESS)
      return result;
  }
  return CUDA_SUCCESS;
}
