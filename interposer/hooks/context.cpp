// SPDX-License-Identifier: Apache-2.0
// Contexts: the session begins with cuInit, attaches to the first context's device, and must know every live
// context to drain it. What was allocated in a context goes with it.
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
