// SPDX-License-Identifier: Apache-2.0
// Contexts, the primary context included.
#include <algorithm>
#include <utility>

#include "tests/simgpu/api.h"

using namespace sharedgpu::simgpu;

namespace {

constexpr unsigned kApiVersion = 3020;

CUcontext handle_of(const ContextPtr& context) { return reinterpret_cast<CUcontext>(context.get()); }

ContextPtr find_context(CUcontext handle) {
  return driver().contexts.get(handle, CUDA_ERROR_INVALID_CONTEXT);
}

// Returns the current context if `handle` is null.
ContextPtr context_or_current(CUcontext handle) {
  return handle == nullptr ? current_context() : find_context(handle);
}

void destroy_context(const ContextPtr& context) {
  driver().contexts.remove(context.get());
  context->destroy();
}

CUresult create_context(CUcontext* out, unsigned flags, CUdevice device) {
  return call("cuCtxCreate", Needs::device, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    require(!driver().is_lost(device), CUDA_ERROR_DEVICE_UNAVAILABLE);
    ContextPtr context = Context::create(flags, device);
    driver().contexts.add(context);
    context_stack().push_back(context);
    *out = handle_of(context);
  });
}

CUresult synchronize_context(CUcontext handle) {
  return call("cuCtxSynchronize", Needs::context, [&] {
    ContextPtr context = context_or_current(handle);
    forbid_capture(*context);
    return synchronize(*context);
  });
}

CUresult get_device(CUdevice* device, CUcontext handle) {
  return call("cuCtxGetDevice", Needs::init, [&] {
    require(device != nullptr, CUDA_ERROR_INVALID_VALUE);
    *device = context_or_current(handle)->device();
  });
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
  return create_context(context, flags, device);
}
CUresult CUDAAPI cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam*, int, unsigned int flags,
                                CUdevice device) {
  return create_context(context, flags, device);
}
#if CUDA_VERSION >= 12050
CUresult CUDAAPI cuCtxCreate_v4(CUcontext* context, CUctxCreateParams*, unsigned int flags, CUdevice device) {
  return create_context(context, flags, device);
}
#endif

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext handle) {
  return call("cuCtxDestroy", Needs::init, [&] {
    require(handle != nullptr, CUDA_ERROR_INVALID_VALUE);
    ContextPtr context = find_context(handle);
    {
      Driver& d = driver();
      std::lock_guard lock(d.mutex);
      require(d.gpu(context->device()).primary != context, CUDA_ERROR_INVALID_CONTEXT);
    }
    auto& stack = context_stack();
    if (!stack.empty() && stack.back() == context) stack.pop_back();
    destroy_context(context);
  });
}

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext handle) {
  return call("cuCtxPushCurrent", Needs::init, [&] {
    require(handle != nullptr, CUDA_ERROR_INVALID_VALUE);
    context_stack().push_back(find_context(handle));
  });
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext* out) {
  return call("cuCtxPopCurrent", Needs::init, [&] {
    auto& stack = context_stack();
    require(!stack.empty(), CUDA_ERROR_INVALID_CONTEXT);
    if (out != nullptr) *out = handle_of(stack.back());
    stack.pop_back();
  });
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext handle) {
  return call("cuCtxSetCurrent", Needs::init, [&] {
    ContextPtr context = handle == nullptr ? nullptr : find_context(handle);
    auto& stack = context_stack();
    if (!stack.empty()) stack.pop_back();
    if (context) stack.push_back(context);
  });
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* out) {
  return call("cuCtxGetCurrent", Needs::init, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto& stack = context_stack();
    *out = stack.empty() ? nullptr : handle_of(stack.back());
  });
}

#undef cuCtxGetDevice
#undef cuCtxSynchronize
CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) { return get_device(device, nullptr); }
CUresult CUDAAPI cuCtxSynchronize(void) { return synchronize_context(nullptr); }
#if CUDA_VERSION >= 13000
CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice* device, CUcontext context) {
  return get_device(device, context);
}
CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext context) { return synchronize_context(context); }
#endif

CUresult CUDAAPI cuCtxGetFlags(unsigned int* flags) {
  return call("cuCtxGetFlags", Needs::init, [&] {
    require(flags != nullptr, CUDA_ERROR_INVALID_VALUE);
    *flags = current_context()->flags();
  });
}

CUresult CUDAAPI cuCtxSetFlags(unsigned int flags) {
  return call("cuCtxSetFlags", Needs::context, [&] { current_context()->set_flags(flags); });
}

#if CUDA_VERSION >= 12000
CUresult CUDAAPI cuCtxGetId(CUcontext handle, unsigned long long* id) {
  return call("cuCtxGetId", Needs::init, [&] {
    require(id != nullptr, CUDA_ERROR_INVALID_VALUE);
    *id = context_or_current(handle)->id();
  });
}
#endif

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  return call("cuCtxGetApiVersion", Needs::init, [&] {
    require(version != nullptr, CUDA_ERROR_INVALID_VALUE);
    context_or_current(handle);
    *version = kApiVersion;
  });
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return call("cuCtxGetStreamPriorityRange", Needs::context, [&] {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
  });
}

CUresult CUDAAPI cuCtxGetLimit(std::size_t* value, CUlimit limit) {
  return call("cuCtxGetLimit", Needs::context, [&] {
    require(value != nullptr, CUDA_ERROR_INVALID_VALUE);
    require(limit == CU_LIMIT_STACK_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE ||
                limit == CU_LIMIT_MALLOC_HEAP_SIZE,
            CUDA_ERROR_UNSUPPORTED_LIMIT);
    *value = limit == CU_LIMIT_STACK_SIZE ? 1024 : limit == CU_LIMIT_PRINTF_FIFO_SIZE ? 1 << 20 : 8 << 20;
  });
}

CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, std::size_t) {
  return call("cuCtxSetLimit", Needs::context, [&] {
    require(limit == CU_LIMIT_STACK_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE ||
                limit == CU_LIMIT_MALLOC_HEAP_SIZE,
            CUDA_ERROR_UNSUPPORTED_LIMIT);
  });
}

CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache* config) {
  return call("cuCtxGetCacheConfig", Needs::context, [&] {
    require(config != nullptr, CUDA_ERROR_INVALID_VALUE);
    *config = CU_FUNC_CACHE_PREFER_NONE;
  });
}

CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache) {
  return call("cuCtxSetCacheConfig", Needs::context, [] {});
}

// On the simulated GPU, peer access is a property of two devices, not of two contexts.
static CUresult change_peer_access(const char* name, CUcontext handle, bool allowed) {
  return call(name, Needs::context, [&] {
    ContextPtr context = current_context();
    ContextPtr peer = find_context(handle);
    require(peer != context, CUDA_ERROR_INVALID_CONTEXT);
    require(peer->device() != context->device() && driver().settings.peer_access,
            CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    driver().space->set_peer_access(context->device(), peer->device(), allowed);
  });
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return change_peer_access("cuCtxEnablePeerAccess", peer, true);
}
CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer) {
  return change_peer_access("cuCtxDisablePeerAccess", peer, false);
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  return call("cuDevicePrimaryCtxRetain", Needs::device, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    Driver& d = driver();
    Gpu& gpu = d.gpu(device);
    std::lock_guard lock(d.mutex);
    require(!gpu.lost(), CUDA_ERROR_DEVICE_UNAVAILABLE);
    if (!gpu.primary) {
      gpu.primary = Context::create(gpu.primary_flags, device);
      d.contexts.add(gpu.primary);
    }
    ++gpu.primary_users;
    *out = handle_of(gpu.primary);
  });
}

static CUresult release_primary(const char* name, CUdevice device, bool at_once) {
  return call(name, Needs::init, [&] {
    Driver& d = driver();
    Gpu& gpu = d.gpu(device);
    ContextPtr gone;
    {
      std::lock_guard lock(d.mutex);
      require(at_once || gpu.primary_users > 0, CUDA_ERROR_INVALID_CONTEXT);
      if (!at_once) --gpu.primary_users;
      if (!gpu.primary || (!at_once && gpu.primary_users > 0)) return;
      gone = std::exchange(gpu.primary, nullptr);  // a reset (`at_once`) does not count as a release
    }
    destroy_context(gone);
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return release_primary("cuDevicePrimaryCtxRelease", device, false);
}
CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return release_primary("cuDevicePrimaryCtxReset", device, true);
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  return call("cuDevicePrimaryCtxSetFlags", Needs::init, [&] {
    Driver& d = driver();
    Gpu& gpu = d.gpu(device);
    std::lock_guard lock(d.mutex);
    gpu.primary_flags = flags;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  return call("cuDevicePrimaryCtxGetState", Needs::init, [&] {
    require(flags != nullptr && active != nullptr, CUDA_ERROR_INVALID_VALUE);
    Driver& d = driver();
    Gpu& gpu = d.gpu(device);
    std::lock_guard lock(d.mutex);
    *flags = gpu.primary_flags;
    *active = gpu.primary != nullptr;
  });
}

}  // extern "C"
