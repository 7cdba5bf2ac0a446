// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/primary.h"

#include "interposer/driver/call.h"
#include "interposer/hooks/make_context.h"

namespace sharedgpu::hooks {

using tracking::Primary;

namespace {

// Takes a reference and releases it again, since the driver returns a primary context only together with a
// reference.
CUresult ask_name(CUdevice device, CUcontext* context) {
  const CUresult result = SHAREDGPU_REAL(cuDevicePrimaryCtxRetain, context, device);
  if (result == CUDA_SUCCESS) SHAREDGPU_REAL(cuDevicePrimaryCtxRelease_v2, device);
  return result;
}

}  // namespace

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

CUresult name_primary(Process& process, CUdevice device, CUcontext* context) {
  const std::lock_guard lock(process.contexts().references(device).mutex);
  return ask_name(device, context);
}

PrimaryStays::PrimaryStays(Process& process, CUdevice device)
    : primary_(process.contexts().references(device)) {
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
  result_ = make_context(device, stay, [&] { process.context_added(context_, device, true); });
}

PrimaryStays::~PrimaryStays() {
  if (result_ != CUDA_SUCCESS) return;
  const std::lock_guard lock(primary_.mutex);
  --primary_.growing;
}

}  // namespace sharedgpu::hooks
