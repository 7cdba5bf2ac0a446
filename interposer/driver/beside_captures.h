// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include "interposer/driver/call.h"

namespace sharedgpu::driver {

// RAII: sets the relaxed capture mode for this thread. In relaxed mode, a call such as the query of an event
// does not invalidate a capture that is in progress or just begins.
class BesideCaptures {
 public:
  BesideCaptures() : exchanged_(SHAREDGPU_REAL(cuThreadExchangeStreamCaptureMode, &mode_) == CUDA_SUCCESS) {}
  ~BesideCaptures() {
    if (exchanged_) SHAREDGPU_REAL(cuThreadExchangeStreamCaptureMode, &mode_);
  }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool exchanged_;
};

}  // namespace sharedgpu::driver
