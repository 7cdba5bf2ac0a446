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
  if (!has(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS))
    return "this GPU cannot migrate managed memory on page faults";
  return nullptr;
}

CUresult ManagedDevice::reserve(CUdeviceptr* base, Bytes size) {
  const Relaxed relaxed(calls());
  const CUresult result = managed_.allocate(base, size.count, CU_MEM_ATTACH_GLOBAL);
  if (result == CUDA_SUCCESS) prefer_the_gpu(*base, size);
  return result;
}

// Advises the driver to keep the pages on this GPU, even if another GPU accesses them. If the driver rejects
// the advice, the memory works all the same.
void ManagedDevice::prefer_the_gpu(CUdeviceptr base, Bytes size) {
  constexpr CUmem_advise kPreferred = CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
  if (managed_.advise != nullptr)
    managed_.advise(base, size.count, kPreferred, device());
  else if (managed_.advise_v2 != nullptr)
    managed_.advise_v2(base, size.count, kPreferred, location_of(device()));
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
