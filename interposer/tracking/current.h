// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interposer/driver/call.h"

namespace sharedgpu::tracking {

// Makes the context current on this thread from construction to destruction. ok() is false if this has
// failed.
class Current {
 public:
  explicit Current(CUcontext context) {
    CUcontext before = nullptr;
    SHAREDGPU_REAL(cuCtxGetCurrent, &before);
    is_current_ = context != nullptr && before == context;
    pushed_ = !is_current_ && SHAREDGPU_REAL(cuCtxPushCurrent_v2, context) == CUDA_SUCCESS;
  }
  ~Current() {
    CUcontext popped = nullptr;
    if (pushed_) SHAREDGPU_REAL(cuCtxPopCurrent_v2, &popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  bool ok() const { return is_current_ || pushed_; }

 private:
  bool is_current_ = false;
  bool pushed_ = false;
};

}  // namespace sharedgpu::tracking
