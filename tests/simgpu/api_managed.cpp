// SPDX-License-Identifier: Apache-2.0
// Managed memory: allocation, prefetches, advice.
#include "tests/simgpu/api.h"
#include "tests/simgpu/work.h"

using namespace sharedgpu;
using namespace sharedgpu::simgpu;

namespace {

constexpr CUdevice kHost = -1;         // CU_DEVICE_CPU
constexpr unsigned kHostLocation = 2;  // CU_MEM_LOCATION_TYPE_HOST, of CUDA 12.2

CUdevice device_of(const CUmemLocation& location) {
  if (static_cast<unsigned>(location.type) == kHostLocation) return kHost;
  require(location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_INVALID_VALUE);
  return location.id;
}

// Returns the range. Throws unless one managed allocation contains the whole range and the device has
// concurrent managed access.
Range managed_range(CUdeviceptr at, std::size_t size, CUdevice device) {
  Driver& d = driver();
  Managed* const managed = d.managed_at(at);
  require(managed != nullptr && size > 0, CUDA_ERROR_INVALID_VALUE);
  const Range block = *managed->find(at);
  // The driver accepts addresses up to the end of the allocation's last page.
  require(at + size <= round_up({block.end()}, kGranule).count, CUDA_ERROR_INVALID_VALUE);
  require(d.settings.concurrent_managed, CUDA_ERROR_INVALID_DEVICE);
  Range range{at, {size}};
  range.device = device == kHost ? d.space->physical_at(at)->device() : d.gpu(device).number;
  return range;
}

template <class DeviceOf>
CUresult prefetch(DefaultStream zero, CUdeviceptr at, std::size_t size, CUstream handle, DeviceOf device_of) {
  return call("cuMemPrefetchAsync", Needs::context, [&] {
    const CUdevice device = device_of();
    const Range range = managed_range(at, size, device);
    StreamPtr stream = find_stream(zero, handle);
    forbid_capture(*stream);
    submit(stream, prefetch_work(range, device != kHost));
  });
}

CUresult to_device(DefaultStream zero, CUdeviceptr at, std::size_t size, CUdevice device, CUstream stream) {
  return prefetch(zero, at, size, stream, [=] { return device; });
}
CUresult to_location(DefaultStream zero, CUdeviceptr at, std::size_t size, CUmemLocation location,
                     unsigned flags, CUstream stream) {
  return prefetch(zero, at, size, stream, [=] {
    require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    return device_of(location);
  });
}

// Only checks the arguments. On the simulated GPU, advice does not influence how pages move.
template <class DeviceOf>
CUresult advise(CUdeviceptr at, std::size_t size, DeviceOf device_of) {
  return call("cuMemAdvise", Needs::context, [&] { managed_range(at, size, device_of()); });
}

using Ptr = CUdeviceptr;
using Size = std::size_t;
using Stream_ = CUstream;

}  // namespace

#undef cuMemPrefetchAsync
#undef cuMemAdvise

extern "C" {

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* out, std::size_t size, unsigned int flags) {
  return call("cuMemAllocManaged", Needs::context, [&] {
    require(out != nullptr && size > 0 && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST),
            CUDA_ERROR_INVALID_VALUE);
    forbid_unsafe_call();
    count_allocation();
    const ContextPtr context = current_context();
    *out = driver().gpu(context->device()).managed->allocate({size}, context.get());
  });
}

SIMGPU_BOTH(cuMemPrefetchAsync, _ptsz, to_device, (Ptr p, Size n, CUdevice d, Stream_ q), p, n, d, q)
SIMGPU_BOTH(cuMemPrefetchAsync_v2, _ptsz, to_location,
            (Ptr p, Size n, CUmemLocation l, unsigned f, Stream_ q), p, n, l, f, q)

CUresult CUDAAPI cuMemAdvise(CUdeviceptr at, std::size_t size, CUmem_advise, CUdevice device) {
  return advise(at, size, [=] { return device; });
}
CUresult CUDAAPI cuMemAdvise_v2(CUdeviceptr at, std::size_t size, CUmem_advise, CUmemLocation location) {
  return advise(at, size, [=] { return device_of(location); });
}

}  // extern "C"
