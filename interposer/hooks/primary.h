// SPDX-License-Identifier: Apache-2.0
// Our own reference to a device's primary context, for memory that has to outlive the program's references.
#pragma once

#include <cuda.h>

#include "interposer/process/process.h"

namespace sharedgpu::hooks {

// keep() takes our reference, unless we have it already or the driver refuses; let_go() releases our
// reference, if we have it. Called with the lock of `primary` held.
CUresult keep(tracking::Primary& primary, CUdevice device);
void let_go(tracking::Primary& primary, CUdevice device);

// Keeps the primary context alive from construction to destruction, if result() is CUDA_SUCCESS. If the
// program has no reference to the context, our own reference keeps the context alive even after the
// destruction of this object, until tend_primary() releases the reference. The context is created if
// necessary.
class PrimaryStays {
 public:
  PrimaryStays(Process& process, CUdevice device);
  ~PrimaryStays();
  PrimaryStays(const PrimaryStays&) = delete;
  PrimaryStays& operator=(const PrimaryStays&) = delete;
  CUresult result() const { return result_; }
  CUcontext context() const { return context_; }

 private:
  tracking::Primary& primary_;
  CUcontext context_ = nullptr;
  CUresult result_ = CUDA_SUCCESS;
};

// Returns the primary context in *context. Call it only while the program or the interposer has a reference
// to this context.
CUresult name_primary(Process& process, CUdevice device, CUcontext* context);

}  // namespace sharedgpu::hooks
