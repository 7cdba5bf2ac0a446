// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/backend.h"

#include "interposer/driver/call.h"
#include "interposer/memory/driver_device.h"
#include "interposer/memory/host_budget.h"
#include "interposer/memory/native_memory.h"
#include "interposer/memory/swap_memory.h"
#include "interposer/session/log.h"
#include "interposer/session/session.h"

namespace sharedgpu::session {
namespace {

DriverCalls real_calls() {
#define REAL(name) .name = reinterpret_cast<decltype(&::name)>(driver::real(driver::Function::name))
  return {
      REAL(cuMemGetAllocationGranularity),
      REAL(cuMemAddressReserve),
      REAL(cuMemAddressFree),
      REAL(cuMemCreate),
      REAL(cuMemRelease),
      REAL(cuMemMap),
      REAL(cuMemSetAccess),
      REAL(cuMemUnmap),
      REAL(cuMemRetainAllocationHandle),
      REAL(cuCtxPushCurrent_v2),
      REAL(cuCtxPopCurrent_v2),
      REAL(cuStreamCreate),
      REAL(cuStreamDestroy_v2),
      REAL(cuStreamSynchronize),
      REAL(cuMemcpyDtoHAsync_v2),
      REAL(cuMemcpyHtoDAsync_v2),
      REAL(cuMemHostRegister_v2),
      REAL(cuMemHostUnregister),
      REAL(cuThreadExchangeStreamCaptureMode),
      REAL(cuDeviceGetAttribute),
      REAL(cuMemExportToShareableHandle),
  };
#undef REAL
}

}  // namespace

MadeMemory make_memory(Backend backend, CUdevice device, Books& books) {
  if (backend == Backend::managed) say("the managed backend is not in this version; using swap");
  DriverCalls calls = real_calls();
  if (backend != Backend::native && !calls.complete()) {
    say("this driver has no virtual memory management: device memory is not swapped");
    backend = Backend::native;
  }
  if (backend == Backend::native) {
    const NativeCalls plain{
        .allocate = [](CUdeviceptr* address,
                       std::size_t size) { return SHAREDGPU_REAL(cuMemAlloc_v2, address, size); },
        .free = [](CUdeviceptr address) { return SHAREDGPU_REAL(cuMemFree_v2, address); }};
    return {.memory = new NativeMemory(plain, books), .device = nullptr};
  }
  // None of these is ever freed: the program may use its memory until its last instruction.
  auto* made = new DriverDevice(calls, device);
  made->set_synchronize([](const std::vector<CUdevice>& devices) { return contexts().synchronize(devices); });
  return {.memory = new SwapMemory(*made, *new CgroupBudget, books), .device = made};
}

}  // namespace sharedgpu::session
