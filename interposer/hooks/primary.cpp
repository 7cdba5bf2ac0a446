// SPDX-License-Identifier: Apache-2.0
// Primary contexts: the program's references to them, our own, and what goes with the last one.
#include "interposer/hooks/primary.h"

#include <map>
#include <mutex>
#include <optional>

#include "interposer/driver/call.h"
#include "interposer/hooks/allocate.h"
#include "interposer/hooks/destroy.h"
#include "interposer/hooks/export.h"
#include "interposer/hooks/holdings.h"
#include "interposer/hooks/make_context.h"
#include "interposer/hooks/pools.h"
#include "interposer/hooks/queues.h"
#include "interposer/hooks/streams.h"
#include "interposer/session/session.h"

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
using session::Primary;

namespace {

// How often a wait for the last work is overtaken by threads that take a reference and give it back.
constexpr int kTries = 100;

// The driver names it to who takes a reference.
CUresult ask_name(CUdevice device, CUcontext* context) {
  const CUresult result = SHAREDGPU_REAL(cuDevicePrimaryCtxRetain, context, device);
  if (result == CUDA_SUCCESS) SHAREDGPU_REAL(cuDevicePrimaryCtxRelease_v2, device);
  return result;
}

// --- Our reference ---

// Takes it, and gives it back, unless the driver refuses. With the lock.
CUresult keep(Primary& primary, CUdevice device) {
  if (primary.kept) return CUDA_SUCCESS;
  CUcontext context = nullptr;
  const CUresult result = SHAREDGPU_REAL(cuDevicePrimaryCtxRetain, &context, device);
  primary.kept = result == CUDA_SUCCESS;
  return result;
}

void let_go(Primary& primary, CUdevice device) {
  primary.kept = primary.kept && SHAREDGPU_REAL(cuDevicePrimaryCtxRelease_v2, device) != CUDA_SUCCESS;
}

// Whether the memory of the device's pools goes with its primary context, in which they take it.
bool pools_go_with_primary(CUdevice device) {
  const Memory* memory = session::memory_of(device);
  return memory != nullptr && memory->goes_with_contexts() && memory->serves_pools();
}

// Whether pools hold memory there, or soon will: stream-ordered memory outlives every context, even where the
// device is reset (measured). With the lock.
bool needed(const Primary& primary, CUdevice device) {
  return pools_go_with_primary(device) && (primary.growing > 0 || hooks::pools().hold(device));
}

// --- The program's ---

// Calls `real`, which takes one.
template <class Call>
CUresult retain_primary(CUdevice device, Call real) {
  Primary& primary = session::contexts().references(device);
  const std::lock_guard lock(primary.mutex);
  const CUresult result = real();
  if (result != CUDA_SUCCESS) return result;
  ++primary.references;
  ++primary.changes;
  primary.reset = false;
  return result;
}

// The lock, where `last` says that the context is about to go taken when its work is over: to wait for that
// with the lock would keep off others, for whom that work may be waiting.
template <class Last>
std::unique_lock<std::mutex> lock_finished(Primary& primary, CUdevice device, Last last) {
  std::unique_lock lock(primary.mutex);
  for (int tries = 0; tries < kTries && last(); ++tries) {
    const std::uint64_t seen = primary.changes;
    lock.unlock();
    const CUcontext context = session::contexts().primary(device);
    if (context != nullptr && session::memory_of(device) != nullptr) hooks::finish_streams_of(context);
    lock.lock();
    if (primary.changes == seen) break;
  }
  return lock;
}

// What the program had in a context that lives on without it, as far as it is in others' way.
void clear_out(CUcontext context) {
  if (context == nullptr) return;
  session::contexts().destroy_streams(context);
  session::context_gone(context);
  session::borrowing().close_all(context);
  hooks::forget_queues_of(context);
  hooks::forget_streams_of(context);
  for (const auto& [address, origin] : hooks::allocations().of(context)) hooks::free_finished(address);
}

// Whether the context has to live on without the program's references: what pools do not use may go with it.
bool holds_up(const Primary& primary, CUdevice device) {
  if (pools_go_with_primary(device)) hooks::pools().give_up(device);
  return needed(primary, device);
}

template <class Call>
CUresult release_primary(CUdevice device, Call real) {
  Primary& primary = session::contexts().references(device);
  const auto lock = lock_finished(primary, device, [&] { return primary.references == 1; });
  if (primary.kept && primary.references == 0) return CUDA_ERROR_INVALID_CONTEXT;  // as where there is none
  const CUcontext context = session::contexts().primary(device);
  CUresult result = CUDA_SUCCESS;
  if (primary.references != 1) {
    result = real();
  } else if (holds_up(primary, device)) {
    result = keep(primary, device);
    if (result == CUDA_SUCCESS) result = real();
    if (result == CUDA_SUCCESS) clear_out(context);
  } else {
    hooks::DestructionBy destruction(context, [&] {
      const CUresult released = real();
      if (released == CUDA_SUCCESS) let_go(primary, device);
      return released;
    });
    result = hooks::destroy(destruction);
    if (result == CUDA_SUCCESS && primary.kept) session::context_added(context, device, true);  // it stays
  }
  if (result != CUDA_SUCCESS || primary.references == 0) return result;
  --primary.references;
  ++primary.changes;
  return result;
}

template <class Call>
CUresult reset_primary(CUdevice device, Call real) {
  Primary& primary = session::contexts().references(device);
  const auto lock = lock_finished(primary, device, [] { return true; });
  const CUcontext context = session::contexts().primary(device);
  CUresult result = CUDA_SUCCESS;
  if (holds_up(primary, device)) {
    clear_out(context);
  } else {
    hooks::DestructionBy destruction(context, real);
    result = hooks::destroy(destruction);
  }
  if (result == CUDA_SUCCESS) primary.reset = true;
  ++primary.changes;
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

}  // namespace

namespace sharedgpu::hooks {

CUresult name_primary(CUdevice device, CUcontext* context) {
  const std::lock_guard lock(session::contexts().references(device).mutex);
  return ask_name(device, context);
}

PrimaryStays::PrimaryStays(CUdevice device) : primary_(session::contexts().references(device)) {
  const auto stay = [&] {
    const std::lock_guard lock(primary_.mutex);
    const bool kept_before = primary_.kept;
    CUresult result = primary_.references == 0 ? keep(primary_, device) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) return result;
    result = ask_name(device, &context_);
    if (result == CUDA_SUCCESS) ++primary_.growing;
    if (result != CUDA_SUCCESS && !kept_before) let_go(primary_, device);
    return result;
  };
  result_ = make_context(device, stay, [&] { session::context_added(context_, device, true); });
}

PrimaryStays::~PrimaryStays() {
  if (result_ != CUDA_SUCCESS) return;
  const std::lock_guard lock(primary_.mutex);
  --primary_.growing;
}

// Where another thread has the lock it may be about to take a reference. Nor may this wait for the GPU, as
// the end of a context does.
void tend_primary(CUdevice device) {
  Primary& primary = session::contexts().references(device);
  const std::unique_lock lock(primary.mutex, std::try_to_lock);
  if (!lock.owns_lock() || !primary.kept || primary.references != 0 || needed(primary, device)) return;
  if (!session::idle()) return;
  const CUcontext context = session::contexts().primary(device);
  DestructionBy destruction(context, [&] {
    let_go(primary, device);
    return primary.kept ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
  });
  destroy(destruction);
}

}  // namespace sharedgpu::hooks

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
