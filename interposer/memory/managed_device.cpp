// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/managed_device.h"

namespace sharedgpu {
namespace {

constexpr CUdevice kHost = -1;  // CU_DEVICE_CPU

CUmemLocation location_of(CUdevice device) {
  constexpr int kHostLocation = 2;  // CU_MEM_LOCATION_TYPE_HOST, of CUDA 12.2
  CUmemLocation location{};
  location.type =
      device == kHost ? static_cast<CUmemLocationType>(kHostLocation) : CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device == kHost ? 0 : device;
  return location;
}

// Sets the relaxed capture mode for this thread: a pool may have to allocate while another thread captures,
// and the allocation must not invalidate the capture.
class Relaxed {
 public:
  explicit Relaxed(const DriverCalls& calls) : calls_(calls) { calls_.exchange(mode_); }
  ~Relaxed() { calls_.exchange(mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  const DriverCalls& calls_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace

const char* lacks_for_managed(const DriverCalls& calls, const ManagedCalls& managed, CUdevice device) {
  if (!managed.complete() || calls.cuDeviceGetAttribute == nullptr)
    return "this driver cannot prefetch managed memory";
  const auto has = [&](CUdevice_attribute attribute) {
    int value = 0;
    return calls.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
  };
  if (!has(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)) return "this GPU has no managed memory";
  if (!has(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)) return "this GPU cannot page managed memory";
  return nullptr;
}

CUresult ManagedDevice::reserve(CUdeviceptr* base, Bytes size) {
  const Relaxed relaxed(calls());
  const CUresult result = managed_.allocate(base, size.count, CU_MEM_ATTACH_GLOBAL);
  // The pages belong on this GPU, even if another GPU accesses them. If the driver rejects the advice, the
  // memory works all the same.
  if (result == CUDA_SUCCESS) advise(*base, size, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device());
  return result;
}

CUresult ManagedDevice::advise(CUdeviceptr address, Bytes size, CUmem_advise advice, CUdevice device) const {
  if (managed_.advise != nullptr) return managed_.advise(address, size.count, advice, device);
  if (managed_.advise_v2 != nullptr)
    return managed_.advise_v2(address, size.count, advice, location_of(device));
  return CUDA_ERROR_NOT_SUPPORTED;
}

// A page on the host that the GPU has mapped ("accessed by") never faults, so it would not migrate to the GPU
// either.
CUresult ManagedDevice::keep_on(Side side, CUdeviceptr address, Bytes size) {
  const bool on_host = side == Side::host;
  const CUresult result =
      advise(address, size, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, on_host ? kHost : device());
  if (result != CUDA_SUCCESS) return result;
  return advise(address, size, on_host ? CU_MEM_ADVISE_SET_ACCESSED_BY : CU_MEM_ADVISE_UNSET_ACCESSED_BY,
                device());
}

CUcontext ManagedDevice::goes_with() {
  CUcontext context = nullptr;
  managed_.current(&context);
  return context;
}

// The driver frees managed memory only if the calling thread has a valid context. The interposer's threads
// have no context before enter(), and the context of a program thread may have been destroyed. In these cases
// the function enters the device's context and calls the driver again.
CUresult ManagedDevice::unreserve(CUdeviceptr base, Bytes /*size*/) {
  const Relaxed relaxed(calls());
  CUresult result = managed_.free(base);
  if (result != CUDA_ERROR_INVALID_CONTEXT && result != CUDA_ERROR_CONTEXT_IS_DESTROYED) return result;
  result = enter();
  if (result != CUDA_SUCCESS) return result;
  result = managed_.free(base);
  leave();
  return result;
}

CUresult ManagedDevice::prefetch(Lane lane, CUdeviceptr address, Bytes size, Side to) {
  CUstream stream = nullptr;
  if (const CUresult result = stream_of(lane, &stream); result != CUDA_SUCCESS) return result;
  const CUdevice target = to == Side::gpu ? device() : kHost;
  return managed_.prefetch != nullptr
             ? managed_.prefetch(address, size.count, target, stream)
             : managed_.prefetch_v2(address, size.count, location_of(target), 0, stream);
}

}  // namespace sharedgpu
