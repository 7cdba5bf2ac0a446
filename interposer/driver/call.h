// SPDX-License-Identifier: Apache-2.0
// Calls the real driver with the types of cuda.h.
#pragma once

#include <cuda.h>

#include "interposer/driver/real.h"

namespace sharedgpu::driver {

// See SHAREDGPU_REAL.
template <class Type, class... Arguments>
CUresult call(Function function, Arguments... arguments) {
  auto* target = reinterpret_cast<Type*>(real(function));
  return target != nullptr ? target(arguments...) : CUDA_ERROR_NOT_FOUND;
}

}  // namespace sharedgpu::driver

// SHAREDGPU_REAL(cuMemFree_v2, address): calls the real cuMemFree_v2. Returns CUDA_ERROR_NOT_FOUND if this
// driver does not have it.
#define SHAREDGPU_REAL(name, ...) \
  ::sharedgpu::driver::call<decltype(::name)>(::sharedgpu::driver::Function::name __VA_OPT__(, ) __VA_ARGS__)
