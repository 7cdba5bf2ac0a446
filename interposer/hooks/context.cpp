// SPDX-License-Identifier: Apache-2.0
// Contexts: the session begins with cuInit, attaches to the first context's device, and must know every live
// context to drain it. What was allocated in a context goes with it.
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "interposer/driver/call.h"
#include "interposer/hooks/allocate.h"
#include "interposer/hooks/export.h"
#include "interposer/hooks/holdings.h"
#include "interposer/hooks/make_context.h"
#include "interposer/hooks/native.h"
#include "interposer/hooks/pools.h"
#include "interposer/hooks/primary.h"
#include "interposer/hooks/queues.h"
#include "interposer/session/session.h"
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
  return hooks::make_context(device, real, [=] { session::context_added(*context, device, false); });
}

template <class Call>
class DestructionBy final : public Destruction {
 public:
  DestructionBy(CUcontext context, Call call) : Destruction(context), call_(call) {}
  CUresult carry_out() override { return call_(); }

 private:
  Call call_;
};

// Calls `real`, which destroys the context and all that was allocated in it. Where it refuses, nothing is
// lost.
template <class Call>
CUresult destroy(CUcontext context, Call real) {
  CUdevice device = 0;
  if (context == nullptr || !session::contexts().device(context, &device)) return real();
  Memory* memory = session::memory_of(device);
  if (memory != nullptr) hooks::finish_streams_of(context);
  session::Contexts::Removed removed = session::context_going(context, device);
  const hooks::Pinned::All pinned = hooks::pinned().take(context);
  const hooks::Allocations::All allocations = hooks::allocations().of(context);
  std::vector<CUdeviceptr> blocks;
  for (const auto& [address, origin] : allocations) blocks.push_back(address);
  DestructionBy destruction(context, real);
  const CUresult result =
      memory != nullptr ? memory->free_with(destruction, blocks) : destruction.carry_out();
  if (result != CUDA_SUCCESS) {
    for (const auto& [name, held] : pinned) hooks::pinned().add(name.first, name.second, held);
    session::context_stays(std::move(removed), device);
    return result;
  }
  for (const auto& [address, origin] : allocations) hooks::allocations().remove(address, origin.id);
  for (const auto& [name, held] : pinned) held.memory->unpin(held.size);
  session::context_gone(context);
  session::borrowing().close_all(context);
  hooks::forget_queues_of(context);
  hooks::forget_streams_of(context);
  return result;
}

// Calls `real`, which retains the primary context.
template <class Call>
CUresult retain_primary(CUdevice device, Call real) {
  session::Primary& primary = session::contexts().references(device);
  const std::lock_guard lock(primary.mutex);
  const CUresult result = real();
  if (result != CUDA_SUCCESS) return result;
  ++primary.references;
  primary.reset = false;
  return result;
}

// Calls `real`, which destroys a context that the program has made, and refuses to destroy a primary one.
template <class Call>
CUresult destroy_made(CUcontext context, Call real) {
  CUdevice device = 0;
  if (session::contexts().device(context, &device) && session::contexts().primary(device) == context)
    return real();
  return destroy(context, real);
}

// Whether the memory of the device's pools goes with its primary context, in which they take it.
bool pools_go_with_primary(CUdevice device) {
  const Memory* memory = session::memory_of(device);
  return memory != nullptr && memory->goes_with_contexts() && memory->serves_pools();
}

// What takes time before the primary context may go: waits for the work there, and gives back what pools do
// not use. To be done without the lock, which another thread may have to take before that work can end.
void finish_primary(CUdevice device) {
  const CUcontext context = session::contexts().primary(device);
  if (session::memory_of(device) == nullptr || context == nullptr) return;
  hooks::finish_streams_of(context);
  if (pools_go_with_primary(device)) hooks::pools().release_all();
}

// Whether pools use memory, or soon will, that would go with the device's primary context: stream-ordered
// memory outlives every context, even where the device is reset (measured). To be asked when that is about to
// go, with the lock of `primary`.
bool hold_up(const session::Primary& primary, CUdevice device) {
  return pools_go_with_primary(device) && (primary.growing > 0 || hooks::pools().hold_any(device));
}

// What the program had in a context that lives on without it, as far as it is in others' way. Returns what is
// to be freed without the lock, since the driver may wait for the GPU then.
hooks::Allocations::All clear_out(CUcontext context) {
  if (context == nullptr) return {};
  session::contexts().destroy_streams(context);
  session::context_gone(context);
  hooks::forget_queues_of(context);
  hooks::forget_streams_of(context);
  return hooks::allocations().of(context);
}

void free_left(CUcontext context, const hooks::Allocations::All& left) {
  if (left.empty()) return;
  const hooks::InContext in(context);
  for (const auto& [address, origin] : left) {
    const auto now = hooks::allocations().origin(address);
    if (now && now->id == origin.id) hooks::free_finished(address);
  }
}

bool is_last(session::Primary& primary) {
  const std::lock_guard lock(primary.mutex);
  return primary.references == 1;
}

template <class Call>
CUresult release_primary(CUdevice device, Call real) {
  session::Primary& primary = session::contexts().references(device);
  if (is_last(primary)) finish_primary(device);
  std::unique_lock lock(primary.mutex);
  if (primary.kept && primary.references == 0) return CUDA_ERROR_INVALID_CONTEXT;  // as where there is none
  const CUcontext context = session::contexts().primary(device);
  hooks::Allocations::All left;
  CUresult result = CUDA_SUCCESS;
  if (primary.references != 1) {
    result = real();
  } else if (hold_up(primary, device)) {
    result = hooks::keep_primary(primary, device);
    if (result == CUDA_SUCCESS) result = real();
    if (result == CUDA_SUCCESS) left = clear_out(context);
  } else {
    result = destroy(context, [&] {
      const CUresult released = real();
      if (released == CUDA_SUCCESS) hooks::let_go_of_primary(primary, device);
      return released;
    });
    if (result == CUDA_SUCCESS && primary.kept) session::context_added(context, device, true);  // it stays
  }
  if (result == CUDA_SUCCESS && primary.references > 0) --primary.references;
  lock.unlock();
  free_left(context, left);
  return result;
}

// The device of each green context. It retains the primary context there, and the driver synchronizes its
// work with that one.
class GreenContexts {
 public:
  void add(CUgreenCtx context, CUdevice device) {
    std::lock_guard lock(mutex_);
    devices_[context] = device;
  }
  std::optional<CUdevice> remove(CUgreenCtx context) {
    std::lock_guard lock(mutex_);
    auto found = devices_.find(context);
    if (found == devices_.end()) return std::nullopt;
    CUdevice device = found->second;
    devices_.erase(found);
    return device;
  }

 private:
  std::mutex mutex_;
  std::map<CUgreenCtx, CUdevice> devices_;
};

GreenContexts& green_contexts() {
  static auto* made = new GreenContexts;
  return *made;
}

template <class Call>
CUresult reset_primary(CUdevice device, Call real) {
  session::Primary& primary = session::contexts().references(device);
  finish_primary(device);
  std::unique_lock lock(primary.mutex);
  const CUcontext context = session::contexts().primary(device);
  hooks::Allocations::All left;
  CUresult result = CUDA_SUCCESS;
  if (hold_up(primary, device))
    left = clear_out(context);
  else
    result = destroy(context, real);
  if (result == CUDA_SUCCESS) primary.reset = true;
  lock.unlock();
  free_left(context, left);
  return result;
}

}  // namespace

SHAREDGPU_EXPORT CUresult cuInit(unsigned int flags) {
  session::name_visible_devices();
  CUresult result = SHAREDGPU_REAL(cuInit, flags);
  return result == CUDA_SUCCESS ? session::start() : result;
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

// The usual sizes, which the estimate of a context contains.
SHAREDGPU_EXPORT CUresult cuCtxSetLimit(CUlimit limit, std::size_t value) {
  const CUresult result = SHAREDGPU_REAL(cuCtxSetLimit, limit, value);
  CUcontext context = nullptr;
  if (result != CUDA_SUCCESS || (limit != CU_LIMIT_MALLOC_HEAP_SIZE && limit != CU_LIMIT_PRINTF_FIFO_SIZE) ||
      session::memories().empty() || SHAREDGPU_REAL(cuCtxGetCurrent, &context) != CUDA_SUCCESS)
    return result;
  const Bytes usual = limit == CU_LIMIT_MALLOC_HEAP_SIZE ? mebibytes(8) : mebibytes(1);
  session::context_extra(context, limit, minus({value}, usual));
  return result;
}

SHAREDGPU_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return hooks::make_context(
      device,
      [=] {
        return retain_primary(device,
                              [=] { return SHAREDGPU_REAL(cuDevicePrimaryCtxRetain, context, device); });
      },
      [=] { session::context_added(*context, device, true); });
}

SHAREDGPU_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return release_primary(device, [=] { return SHAREDGPU_REAL(cuDevicePrimaryCtxRelease, device); });
}

SHAREDGPU_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return release_primary(device, [=] { return SHAREDGPU_REAL(cuDevicePrimaryCtxRelease_v2, device); });
}

SHAREDGPU_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return reset_primary(device, [=] { return SHAREDGPU_REAL(cuDevicePrimaryCtxReset, device); });
}

SHAREDGPU_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return reset_primary(device, [=] { return SHAREDGPU_REAL(cuDevicePrimaryCtxReset_v2, device); });
}

// Our own reference to it is nothing to the program.
SHAREDGPU_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  const CUresult result = SHAREDGPU_REAL(cuDevicePrimaryCtxGetState, device, flags, active);
  if (result != CUDA_SUCCESS || session::memory_of(device) == nullptr) return result;
  session::Primary& primary = session::contexts().references(device);
  const std::lock_guard lock(primary.mutex);
  if (primary.reset || (primary.kept && primary.references == 0)) *active = 0;
  return result;
}

SHAREDGPU_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx* green, CUdevResourceDesc resources, CUdevice device,
                                           unsigned int flags) {
  return hooks::make_context(
      device,
      [=] {
        return retain_primary(
            device, [=] { return SHAREDGPU_REAL(cuGreenCtxCreate, green, resources, device, flags); });
      },
      [=] {
        green_contexts().add(*green, device);
        CUcontext primary = nullptr;
        if (hooks::name_primary(device, &primary) == CUDA_SUCCESS)
          session::context_added(primary, device, true);
      });
}

SHAREDGPU_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green) {
  CUcontext context = nullptr;
  // Its streams are useless from now on, and their captures over.
  if (SHAREDGPU_REAL(cuCtxFromGreenCtx, &context, green) == CUDA_SUCCESS) session::captures().drop(context);
  auto device = green_contexts().remove(green);
  if (!device) return SHAREDGPU_REAL(cuGreenCtxDestroy, green);
  const CUresult result = release_primary(*device, [=] { return SHAREDGPU_REAL(cuGreenCtxDestroy, green); });
  if (result != CUDA_SUCCESS) green_contexts().add(green, *device);
  return result;
}
