// SPDX-License-Identifier: Apache-2.0
// A reference of our own to a device's primary context, where memory is to outlive the program's references.
#pragma once

#include <cuda.h>

#include "interposer/process/process.h"

namespace sharedgpu::hooks {

// Takes our reference, and gives it back, unless the driver refuses. With the lock of `primary`.
CUresult keep(session::Primary& primary, CUdevice device);
void let_go(session::Primary& primary, CUdevice device);

// The primary context stays from construction to destruction, where result() is CUDA_SUCCESS. Where the
// program has no reference to it, one of ours keeps it from then on; if need be it is made.
class PrimaryStays {
 public:
  PrimaryStays(Process& process, CUdevice device);
  ~PrimaryStays();
  PrimaryStays(const PrimaryStays&) = delete;
  PrimaryStays& operator=(const PrimaryStays&) = delete;
  CUresult result() const { return result_; }
  CUcontext context() const { return context_; }

 private:
  session::Primary& primary_;
  CUcontext context_ = nullptr;
  CUresult result_ = CUDA_SUCCESS;
};

// Names one that somebody has a reference to.
CUresult name_primary(Process& process, CUdevice device, CUcontext* context);

}  // namespace sharedgpu::hooks
