// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/backend.h"

#include <cstring>

#include "interposer/driver/call.h"
#include "interposer/gate/gate.h"
#include "interposer/memory/driver_device.h"
#include "interposer/memory/host_budget.h"
#include "interposer/memory/managed_device.h"
#include "interposer/memory/managed_memory.h"
#include "interposer/memory/native_memory.h"
#include "interposer/memory/swap_memory.h"
#include "interposer/session/log.h"

namespace sharedgpu::session {
namespace {

DriverCalls real_calls() {
#define REAL(name) .name = reinterpret_cast<decltype(&::name)>(driver::real(driver::Function::name)),
  return {SHAREDGPU_DRIVER_CALLS(REAL)};
#undef REAL
}

ManagedCalls managed_calls() {
#define REAL(member, name) \
  .member = reinterpret_cast<decltype(ManagedCalls::member)>(driver::real(driver::Function::name))
  return {
      REAL(allocate, cuMemAllocManaged),        REAL(free, cuMemFree_v2),  REAL(prefetch, cuMemPrefetchAsync),
      REAL(prefetch_v2, cuMemPrefetchAsync_v2), REAL(advise, cuMemAdvise), REAL(advise_v2, cuMemAdvise_v2),
      REAL(current, cuCtxGetCurrent),
  };
#undef REAL
}

// While the program waits at the gate, the program does not use its processors, so several threads may touch
// memory.
class GuestHost final : public LinuxHost {
 public:
  using LinuxHost::LinuxHost;
  unsigned spare_threads() const override { return gate::wanted() ? kMostThreads : 1; }
};

// The memories of all GPUs share one budget, since the budget also counts host memory for which no cgroup is
// charged.
HostBudget& host_budget() {
  static auto* made = new CgroupBudget({}, [](const char* path, int error) {
    say("cannot read %s (%s): the limit of this job's host memory is not known", path, std::strerror(error));
  });
  return *made;
}

}  // namespace

MadeMemory make_memory(Backend backend, CUdevice device, Books& books, tracking::Contexts& contexts) {
  DriverCalls calls = real_calls();
  if (backend != Backend::native && !calls.complete()) {
    say("this driver has no virtual memory management: device memory is not swapped");
    backend = Backend::native;
  }
  const ManagedCalls managed = managed_calls();
  if (backend == Backend::managed)
    if (const char* lack = lacks_for_managed(calls, managed, device)) {
      say("the managed backend cannot be used: %s; using swap", lack);
      backend = Backend::swap;
    }
  if (backend == Backend::native) {
    const NativeCalls plain{
        .allocate = [](CUdeviceptr* address,
                       std::size_t size) { return SHAREDGPU_REAL(cuMemAlloc_v2, address, size); },
        .free = [](CUdeviceptr address) { return SHAREDGPU_REAL(cuMemFree_v2, address); }};
    return {.memory = new NativeMemory(plain, books), .device = nullptr};
  }
  // The objects created here are never freed, because the program may use its memory until its last
  // instruction.
  HostBudget& budget = host_budget();
  const auto wait = [&](const std::vector<CUdevice>& devices) { return contexts.synchronize(devices); };
  MadeMemory made;
  if (backend == Backend::managed) {
    made.device = new ManagedDevice(calls, managed, device, wait);
    made.memory = new ManagedMemory(*made.device, budget, books);
  } else {
    made.device = new DriverDevice(calls, device, wait);
    made.memory = new SwapMemory(*made.device, budget, *new GuestHost(made.device->host_node()), books);
  }
  return made;
}

}  // namespace sharedgpu::session
