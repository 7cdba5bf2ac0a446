// SPDX-License-Identifier: Apache-2.0
// Contexts: the session begins with cuInit, attaches to the first context's device, and must know every live
// context to drain it. What was allocated in a context goes with it.
#include <cstdint>
#include <optional>

#include "interposer/driver/call.h"
#include "interposer/hooks/destroy.h"
#include "interposer/hooks/export.h"
#include "interposer/hooks/make_context.h"
#include "interposer/session/session.h"
#include "interposer/session/visible.h"

#if CUDA_VERSION < 12050
struct CUctxCreateParams;
extern "C" CUresult cuCtxCreate_v4(CUcontext*, CUctxCreateParams*, unsigned int, CUdevice);
#endif

using namespace sharedgpu;

namespace {

template <class Call>
CUresult create(CUcontext* context, CUdevice device, Call real) {
  return hooks::make_context(device, real, [=] { session::context_added(*context, device, false); });
}

// The most threads that the current context's device holds at once.
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

// The device memory that a context takes for such a limit beyond the usual one, which the estimate of its
// size contains; none: limits of this kind take nothing.
std::optional<Bytes> extra_for(CUlimit limit, Bytes value) {
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE) return minus(value, mebibytes(8));
  if (limit == CU_LIMIT_PRINTF_FIFO_SIZE) return minus(value, mebibytes(1));
  if (limit == CU_LIMIT_STACK_SIZE) return Bytes{minus(value, Bytes{1024}).count * resident_threads()};
  return std::nullopt;
}

// Calls `real`, which destroys a context that the program has made, and refuses to destroy a primary one.
template <class Call>
CUresult destroy_made(CUcontext context, Call real) {
  CUdevice device = 0;
  if (session::contexts().device(context, &device) && session::contexts().primary(device) == context)
    return real();
  hooks::DestructionBy destruction(context, real);
  return hooks::destroy(destruction);
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

SHAREDGPU_EXPORT CUresult cuCtxSetLimit(CUlimit limit, std::size_t value) {
  const CUresult result = SHAREDGPU_REAL(cuCtxSetLimit, limit, value);
  CUcontext context = nullptr;
  if (result != CUDA_SUCCESS || session::memories().empty() ||
      SHAREDGPU_REAL(cuCtxGetCurrent, &context) != CUDA_SUCCESS)
    return result;
  if (const auto extra = extra_for(limit, {value})) session::context_extra(context, limit, *extra);
  return result;
}
