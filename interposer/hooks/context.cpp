// SPDX-License-Identifier: Apache-2.0
// The wrappers of functions about contexts, including primary and green contexts. The session begins with
// cuInit and attaches to the first context's device. The session must know every live context, in order to
// drain it. When a context is destroyed, the memory allocated in it is freed.
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "interposer/backlog/queues.h"
#include "interposer/driver/call.h"
#include "interposer/hooks/context_teardown.h"
#include "interposer/hooks/export.h"
#include "interposer/hooks/make_context.h"
#include "interposer/hooks/pools.h"
#include "interposer/hooks/primary.h"
#include "interposer/process/process.h"
#include "interposer/session/visible.h"

#if CUDA_VERSION < 12050
struct CUctxCreateParams;
extern "C" CUresult cuCtxCreate_v4(CUcontext*, CUctxCreateParams*, unsigned int, CUdevice);
#endif

#if CUDA_VERSION < 12040
typedef struct CUgreenCtx_st* CUgreenCtx;
typedef struct CUdevResourceDesc_st* CUdevResourceDesc;
extern "C" {
CUresult cuGreenCtxCreate(CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned int);
CUresult cuGreenCtxDestroy(CUgreenCtx);
CUresult cuCtxFromGreenCtx(CUcontext*, CUgreenCtx);
}
#endif

using namespace sharedgpu;

namespace {

template <class Call>
CUresult create(CUcontext* context, CUdevice device, Call real) {
  Process* const mine = Process::get();
  if (mine == nullptr) return real();
  return hooks::make_context(device, real, [=] { mine->context_added(*context, device, false); });
}

// The maximum number of resident threads on the current context's device; zero if the driver does not tell
// it.
std::uint64_t resident_threads() {
  CUdevice device = 0;
  int processors = 0;
  int threads = 0;
  const bool known =
      SHAREDGPU_REAL(cuCtxGetDevice, &device) == CUDA_SUCCESS &&
      SHAREDGPU_REAL(cuDeviceGetAttribute, &processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) ==
          CUDA_SUCCESS &&
      SHAREDGPU_REAL(cuDeviceGetAttribute, &threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                     device) == CUDA_SUCCESS;
  return known ? static_cast<std::uint64_t>(processors) * static_cast<std::uint64_t>(threads) : 0;
}

// The device memory that the driver allocates for a context if `limit` is set to `value`, minus the memory
// for the default value. The estimate of a context's size contains the memory for the default value. Returns
// nullopt if limits of this kind need no memory.
std::optional<Bytes> extra_for(CUlimit limit, Bytes value) {
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE) return minus(value, mebibytes(8));
  if (limit == CU_LIMIT_PRINTF_FIFO_SIZE) return minus(value, mebibytes(1));
  if (limit == CU_LIMIT_STACK_SIZE) return Bytes{minus(value, Bytes{1024}).count * resident_threads()};
  return std::nullopt;
}

// Calls `real`, which destroys a context that the program has created; for a primary context, `real` returns
// an error.
template <class Call>
CUresult destroy_made(CUcontext context, Call real) {
  Process* const mine = Process::get();
  CUdevice device = 0;
  if (mine == nullptr ||
      (mine->contexts().device(context, &device) && mine->contexts().primary(device) == context))
    return real();
  hooks::DestructionBy destruction(context, real);
  return hooks::destroy(*mine, destruction);
}

// Calls `real`, which takes a reference to the device's primary context, and counts this reference.
template <class Call>
CUresult retain_primary(Process& process, CUdevice device, Call real) {
  tracking::Primary& primary = process.contexts().references(device);
  const std::lock_guard lock(primary.mutex);
  const CUresult result = real();
  if (result != CUDA_SUCCESS) return result;
  ++primary.references;
  ++primary.changes;
  primary.reset = false;
  return result;
}

// The device of each green context. A green context retains the primary context of its device, and the driver
// synchronizes the work of both together.
class GreenContexts {
 public:
  void add(CUgreenCtx context, CUdevice device) {
    std::lock_guard lock(mutex_);
    devices_[context] = device;
  }
  std::optional<CUdevice> remove(CUgreenCtx context) {
    std::lock_guard lock(mutex_);
    const auto removed = devices_.extract(context);
    if (removed.empty()) return std::nullopt;
    return removed.mapped();
  }

 private:
  std::mutex mutex_;
  std::map<CUgreenCtx, CUdevice> devices_;
};

GreenContexts& green_contexts() {
  static auto* made = new GreenContexts;
  return *made;
}

// Maintenance of the pools and the primary contexts of all GPUs.
class PoolMaintenance final : public Maintenance {
 public:
  void run(Pinning& /*memory*/) override {
    Process* const mine = Process::get();
    if (mine == nullptr) return;
    hooks::pools().tend();
    for (const CUdevice device : mine->devices().attached()) hooks::tend_primary(*mine, device);
  }
};

}  // namespace

SHAREDGPU_EXPORT CUresult cuInit(unsigned int flags) {
  session::name_visible_devices();
  static const Process::Parts parts{*new PoolMaintenance, backlog::submission_clock()};
  const CUresult result = SHAREDGPU_REAL(cuInit, flags);
  return result == CUDA_SUCCESS ? Process::start(parts) : result;
}

SHAREDGPU_EXPORT CUresult cuCtxCreate(CUcontext* context, unsigned int flags, CUdevice device) {
  return create(context, device, [=] { return SHAREDGPU_REAL(cuCtxCreate, context, flags, device); });
}

SHAREDGPU_EXPORT CUresult cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
  return create(context, device, [=] { return SHAREDGPU_REAL(cuCtxCreate_v2, context, flags, device); });
}

SHAREDGPU_EXPORT CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinity, int count,
                                         unsigned int flags, CUdevice device) {
  return create(context, device,
                [=] { return SHAREDGPU_REAL(cuCtxCreate_v3, context, affinity, count, flags, device); });
}

SHAREDGPU_EXPORT CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters,
                                         unsigned int flags, CUdevice device) {
  return create(context, device,
                [=] { return SHAREDGPU_REAL(cuCtxCreate_v4, context, parameters, flags, device); });
}

SHAREDGPU_EXPORT CUresult cuCtxDestroy(CUcontext context) {
  return destroy_made(context, [=] { return SHAREDGPU_REAL(cuCtxDestroy, context); });
}

SHAREDGPU_EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
  return destroy_made(context, [=] { return SHAREDGPU_REAL(cuCtxDestroy_v2, context); });
}

SHAREDGPU_EXPORT CUresult cuCtxSetLimit(CUlimit limit, std::size_t value) {
  const CUresult result = SHAREDGPU_REAL(cuCtxSetLimit, limit, value);
  CUcontext context = nullptr;
  Process* const mine = Process::get();
  if (result != CUDA_SUCCESS || mine == nullptr || mine->devices().memories().empty() ||
      SHAREDGPU_REAL(cuCtxGetCurrent, &context) != CUDA_SUCCESS)
    return result;
  if (const auto extra = extra_for(limit, {value})) mine->context_extra(context, limit, *extra);
  return result;
}

SHAREDGPU_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  Process* const mine = Process::get();
  const auto real = [=] { return SHAREDGPU_REAL(cuDevicePrimaryCtxRetain, context, device); };
  if (mine == nullptr) return real();
  return hooks::make_context(
      device, [=] { return retain_primary(*mine, device, real); },
      [=] { mine->context_added(*context, device, true); });
}

SHAREDGPU_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return hooks::release_primary(device, [=] { return SHAREDGPU_REAL(cuDevicePrimaryCtxRelease, device); });
}

SHAREDGPU_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return hooks::release_primary(device, [=] { return SHAREDGPU_REAL(cuDevicePrimaryCtxRelease_v2, device); });
}

SHAREDGPU_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return hooks::reset_primary(device, [=] { return SHAREDGPU_REAL(cuDevicePrimaryCtxReset, device); });
}

SHAREDGPU_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return hooks::reset_primary(device, [=] { return SHAREDGPU_REAL(cuDevicePrimaryCtxReset_v2, device); });
}

// Reports a primary context as inactive if only the interposer has a reference to it, or if the program has
// reset the context.
SHAREDGPU_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  const CUresult result = SHAREDGPU_REAL(cuDevicePrimaryCtxGetState, device, flags, active);
  Process* const mine = Process::get();
  if (result != CUDA_SUCCESS || mine == nullptr || mine->devices().memory(device) == nullptr) return result;
  tracking::Primary& primary = mine->contexts().references(device);
  const std::lock_guard lock(primary.mutex);
  if (primary.reset || (primary.kept && primary.references == 0)) *active = 0;
  return result;
}

SHAREDGPU_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx* green, CUdevResourceDesc resources, CUdevice device,
                                           unsigned int flags) {
  Process* const mine = Process::get();
  const auto real = [=] { return SHAREDGPU_REAL(cuGreenCtxCreate, green, resources, device, flags); };
  if (mine == nullptr) return real();
  return hooks::make_context(
      device, [=] { return retain_primary(*mine, device, real); },
      [=] {
        green_contexts().add(*green, device);
        CUcontext primary = nullptr;
        if (hooks::name_primary(*mine, device, &primary) == CUDA_SUCCESS)
          mine->context_added(primary, device, true);
      });
}

SHAREDGPU_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green) {
  CUcontext context = nullptr;
  const auto real = [=] { return SHAREDGPU_REAL(cuGreenCtxDestroy, green); };
  Process* const mine = Process::get();
  if (mine == nullptr) return real();
  // The program cannot use the context's streams any more, so their captures end here.
  if (SHAREDGPU_REAL(cuCtxFromGreenCtx, &context, green) == CUDA_SUCCESS) mine->captures().drop(context);
  auto device = green_contexts().remove(green);
  if (!device) return real();
  const CUresult result = hooks::release_primary(*device, real);
  if (result != CUDA_SUCCESS) green_contexts().add(green, *device);
  return result;
}
