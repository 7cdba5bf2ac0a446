// SPDX-License-Identifier: Apache-2.0
// This file calls each function by exactly the name that the driver exports, with or without a version
// suffix. This definition keeps cuda.h from replacing some names by those of the newest version.
#define __CUDA_API_VERSION_INTERNAL
#include "interposer/memory/driver_device.h"

#include "interposer/memory/numa.h"

namespace sharedgpu {

#define IS_SET(name) &&(name) != nullptr
bool DriverCalls::complete() const { return true SHAREDGPU_NEEDED_CALLS(IS_SET); }
bool DriverCalls::can_look() const { return true SHAREDGPU_LOOK_CALLS(IS_SET); }
#undef IS_SET

DriverDevice::DriverDevice(const DriverCalls& calls, CUdevice device, Synchronize synchronize)
    : calls_(calls),
      device_(device),
      rdma_(has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)),
      exportable_(has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)),
      granularity_(mebibytes(2)),
      synchronize_(std::move(synchronize)) {
  const CUmemAllocationProp wanted = properties(exportable_);
  std::size_t granularity = 0;
  if (calls_.cuMemGetAllocationGranularity(&granularity, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) ==
          CUDA_SUCCESS &&
      granularity != 0) {
    granularity_ = {granularity};
  }
}

void DriverDevice::use_context(CUcontext context) {
  // If the context is unchanged, this thread must not wait for the mutexes, which are held for a long time
  // while memory is copied or pinned.
  if (context_.load(std::memory_order_acquire) == context) return;
  const std::scoped_lock lock(context_mutex_, pinning_mutex_);
  if (context_ == context) return;
  drop_context();
  context_ = context;
}

// Frees the streams and the kernel in the old context. This context may already have been destroyed, together
// with its streams and the kernel. In this case push() fails, and this function only resets the members.
void DriverDevice::drop_context() {
  if (push(capture_mode_) != CUDA_SUCCESS) {
    streams_.fill(nullptr);
    launcher_.forget();
    return;
  }
  launcher_.unload();
  for (CUstream& stream : streams_) {
    if (stream != nullptr) calls_.cuStreamDestroy_v2(stream);
    stream = nullptr;
  }
  pop(capture_mode_);
}

std::optional<int> DriverDevice::attribute(CUdevice_attribute name) const {
  int value = 0;
  if (calls_.cuDeviceGetAttribute == nullptr ||
      calls_.cuDeviceGetAttribute(&value, name, device_) != CUDA_SUCCESS)
    return std::nullopt;
  return value;
}

std::optional<unsigned> DriverDevice::host_node() const {
  const auto newer_drivers =
      static_cast<CUdevice_attribute>(134);  // CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, CUDA 12.2
  if (const std::optional<int> node = attribute(newer_drivers); node && *node >= 0)
    return static_cast<unsigned>(*node);
  const std::optional<int> domain = attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  const std::optional<int> bus = attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  const std::optional<int> device = attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  if (!domain || !bus || !device) return std::nullopt;
  return numa_node_of({.domain = *domain, .bus = *bus, .device = *device});
}

// Returns properties that make the memory usable by other processes and network cards, like memory from
// cuMemAlloc. Leaves out the properties that this device does not support.
CUmemAllocationProp DriverDevice::properties(bool exportable) const {
  CUmemAllocationProp wanted{};
  wanted.requestedHandleTypes =
      exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
  wanted.allocFlags.gpuDirectRDMACapable = rdma_ ? 1 : 0;
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device_;
  return wanted;
}

CUresult DriverDevice::reserve(CUdeviceptr* base, Bytes size) {
  return calls_.cuMemAddressReserve(base, size.count, 0, 0, 0);
}

CUresult DriverDevice::unreserve(CUdeviceptr base, Bytes size) {
  return calls_.cuMemAddressFree(base, size.count);
}

CUresult DriverDevice::create(Physical* physical, Bytes size, const CUmemAllocationProp* kind) {
  if (kind != nullptr) return calls_.cuMemCreate(physical, size.count, kind, 0);
  const bool exportable = exportable_.load(std::memory_order_relaxed);
  CUmemAllocationProp wanted = properties(exportable);
  CUresult result = calls_.cuMemCreate(physical, size.count, &wanted, 0);
  if (!exportable || (result != CUDA_ERROR_NOT_SUPPORTED && result != CUDA_ERROR_NOT_PERMITTED))
    return result;
  // Tries again to create the memory, now without the permission to export it: in some virtual machines and
  // containers, the driver reports that memory can be exported, but refuses to create exportable memory.
  wanted = properties(false);
  result = calls_.cuMemCreate(physical, size.count, &wanted, 0);
  if (result == CUDA_SUCCESS) exportable_.store(false, std::memory_order_relaxed);
  return result;
}

CUresult DriverDevice::create_on_host(Physical* physical, Bytes size) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = static_cast<CUmemLocationType>(3);  // CU_MEM_LOCATION_TYPE_HOST_NUMA, CUDA 12.2
  wanted.location.id = static_cast<int>(host_node().value_or(0));
  return calls_.cuMemCreate(physical, size.count, &wanted, 0);
}

CUresult DriverDevice::retain(Physical* physical, CUdeviceptr address) {
  return calls_.cuMemRetainAllocationHandle(physical, reinterpret_cast<void*>(address));  // NOLINT
}

CUresult DriverDevice::release(Physical physical) { return calls_.cuMemRelease(physical); }

CUresult DriverDevice::map(CUdeviceptr address, Bytes size, Physical physical) {
  return calls_.cuMemMap(address, size.count, 0, physical, 0);
}

void DriverDevice::set_peer(CUdevice peer, bool allowed) {
  const std::lock_guard lock(peers_mutex_);
  std::erase(peers_, peer);
  if (allowed) peers_.push_back(peer);
}

// The devices whose work may use the memory: this device and its peers.
std::vector<CUdevice> DriverDevice::users() const {
  std::vector<CUdevice> all{device_};
  const std::lock_guard lock(peers_mutex_);
  all.insert(all.end(), peers_.begin(), peers_.end());
  return all;
}

CUresult DriverDevice::allow_access(CUdeviceptr address, Bytes size) {
  std::vector<CUmemAccessDesc> all;
  for (const CUdevice user : users()) all.emplace_back().location.id = user;
  for (CUmemAccessDesc& access : all) {
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  return calls_.cuMemSetAccess(address, size.count, all.data(), all.size());
}

CUresult DriverDevice::set_access(CUdeviceptr address, Bytes size,
                                  const std::vector<CUmemAccessDesc>& access) {
  return calls_.cuMemSetAccess(address, size.count, access.data(), access.size());
}

CUresult DriverDevice::unmap(CUdeviceptr address, Bytes size) {
  return calls_.cuMemUnmap(address, size.count);
}

CUresult DriverDevice::export_memory(CUdeviceptr address, int* descriptor) {
  if (!exportable() || !calls_.cuMemExportToShareableHandle) return CUDA_ERROR_NOT_SUPPORTED;
  Physical physical = 0;
  CUresult result =
      calls_.cuMemRetainAllocationHandle(&physical, reinterpret_cast<void*>(address));  // NOLINT
  if (result != CUDA_SUCCESS) return result;
  result =
      calls_.cuMemExportToShareableHandle(descriptor, physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  calls_.cuMemRelease(physical);
  return result;
}

CUresult DriverDevice::enter() {
  context_mutex_.lock();
  const CUresult result = push(capture_mode_);
  if (result != CUDA_SUCCESS) context_mutex_.unlock();
  return result;
}

void DriverDevice::leave() {
  pop(capture_mode_);
  context_mutex_.unlock();
}

CUresult DriverDevice::push(CUstreamCaptureMode& mode) {
  const CUresult result =
      context_ == nullptr ? CUDA_ERROR_INVALID_CONTEXT : calls_.cuCtxPushCurrent_v2(context_);
  if (result != CUDA_SUCCESS) return result;
  mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  calls_.exchange(mode);
  return CUDA_SUCCESS;
}

void DriverDevice::pop(CUstreamCaptureMode& mode) {
  calls_.exchange(mode);
  CUcontext popped = nullptr;
  calls_.cuCtxPopCurrent_v2(&popped);
}

CUresult DriverDevice::stream_of(Lane lane, CUstream* stream) {
  CUstream& slot = streams_[lane.index];
  if (slot == nullptr) {
    const CUresult result = calls_.cuStreamCreate(&slot, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) {
      slot = nullptr;
      return result;
    }
  }
  *stream = slot;
  return CUDA_SUCCESS;
}

CUresult DriverDevice::copy_out(Lane lane, std::byte* host, CUdeviceptr from, Bytes size) {
  CUstream stream = nullptr;
  const CUresult result = stream_of(lane, &stream);
  return result == CUDA_SUCCESS ? calls_.cuMemcpyDtoHAsync_v2(host, from, size.count, stream) : result;
}

CUresult DriverDevice::copy_in(Lane lane, CUdeviceptr to, const std::byte* host, Bytes size) {
  CUstream stream = nullptr;
  const CUresult result = stream_of(lane, &stream);
  return result == CUDA_SUCCESS ? calls_.cuMemcpyHtoDAsync_v2(to, host, size.count, stream) : result;
}

CUresult DriverDevice::copy(Lane lane, CUdeviceptr to, CUdeviceptr from, Bytes size) {
  if (!calls_.cuMemcpyDtoDAsync_v2) return CUDA_ERROR_NOT_SUPPORTED;
  CUstream stream = nullptr;
  const CUresult result = stream_of(lane, &stream);
  return result == CUDA_SUCCESS ? calls_.cuMemcpyDtoDAsync_v2(to, from, size.count, stream) : result;
}

CUresult DriverDevice::fill(Lane lane, CUdeviceptr to, Bytes size, std::uint32_t word) {
  if (!calls_.cuMemsetD32Async) return CUDA_ERROR_NOT_SUPPORTED;
  CUstream stream = nullptr;
  const CUresult result = stream_of(lane, &stream);
  return result == CUDA_SUCCESS ? calls_.cuMemsetD32Async(to, word, size.count / sizeof word, stream)
                                : result;
}

CUresult DriverDevice::fingerprints(std::span<const Look> ranges, Fingerprint* found) {
  CUstream stream = nullptr;
  const CUresult result = stream_of({Lane::kLooks}, &stream);
  return result == CUDA_SUCCESS ? launcher_.look(stream, ranges, found) : result;
}

CUresult DriverDevice::wait(Lane lane) {
  const CUstream stream = streams_[lane.index];
  return stream == nullptr ? CUDA_SUCCESS : calls_.cuStreamSynchronize(stream);
}

// Calls `call` in the context. Any thread may do this, whether the thread has called enter() or not.
template <class Call>
CUresult DriverDevice::within_context(Call call) {
  const std::lock_guard lock(pinning_mutex_);
  CUstreamCaptureMode mode{};
  if (const CUresult result = push(mode); result != CUDA_SUCCESS) return result;
  const CUresult result = call();
  pop(mode);
  return result;
}

// CU_MEMHOSTREGISTER_PORTABLE makes the memory pinned for all contexts, since the pool outlives the program's
// contexts.
CUresult DriverDevice::pin_host(std::byte* data, Bytes size) {
  return within_context(
      [&] { return calls_.cuMemHostRegister_v2(data, size.count, CU_MEMHOSTREGISTER_PORTABLE); });
}

CUresult DriverDevice::unpin_host(std::byte* data) {
  return within_context([&] { return calls_.cuMemHostUnregister(data); });
}

CUresult DriverDevice::synchronize() { return synchronize_(users()); }

// Returns true only for a permanent error. Two errors are not permanent: a lack of memory, and the error that
// enter() returns while there is no context.
bool DriverDevice::lost() {
  CUresult result = enter();
  if (result == CUDA_SUCCESS) {
    CUstream stream = nullptr;
    result = stream_of({}, &stream);
    if (result == CUDA_SUCCESS) result = calls_.cuStreamSynchronize(stream);
    leave();
  }
  return result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY && result != CUDA_ERROR_INVALID_CONTEXT;
}

bool DriverDevice::ending() {
  int ignored = 0;
  return calls_.cuDeviceGetAttribute(&ignored, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device_) ==
         CUDA_ERROR_DEINITIALIZED;
}

}  // namespace sharedgpu
