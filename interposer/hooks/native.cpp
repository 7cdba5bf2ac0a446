// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/native.h"

#include "interposer/gate/clock.h"

namespace sharedgpu::hooks {

bool Patience::worth_another_try(CUresult result) {
  constexpr int kTries = 200;
  if (result != CUDA_ERROR_OUT_OF_MEMORY || tries_++ == kTries) return false;
  gate::nap(std::chrono::milliseconds(10));
  return true;
}

CUcontext current_context() {
  CUcontext context = nullptr;
  SHAREDGPU_REAL(cuCtxGetCurrent, &context);
  return context;
}

CUresult sticky_error(CUstream stream) {
  Process* mine = Process::get();
  return mine != nullptr ? mine->contexts().error_of(stream) : CUDA_SUCCESS;
}

}  // namespace sharedgpu::hooks
