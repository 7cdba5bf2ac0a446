// SPDX-License-Identifier: Apache-2.0
// The destruction of a context, and of everything that the program has in it.
#pragma once

#include <cuda.h>

#include <functional>
#include <utility>

#include "interposer/memory/memory.h"
#include "interposer/process/process.h"

namespace sharedgpu::hooks {

using Call = std::function<CUresult()>;

class DestructionBy final : public Destruction {
 public:
  DestructionBy(CUcontext context, Call call) : Destruction(context), call_(std::move(call)) {}
  CUresult carry_out() override { return call_(); }

 private:
  const Call call_;
};

// Carries out the destruction, which frees all memory that was allocated in the context. If the driver
// refuses the destruction, the context and its memory stay as they were.
CUresult destroy(Process& process, Destruction& destruction);

// release_primary() releases one of the program's references to the primary context by calling `real`. If
// this is the last one while memory of the device's pools is still needed, the interposer first takes a
// reference of its own, which keeps the context.
//
// reset_primary() resets the context by calling `real`. If memory of the pools is still needed, it does not
// call `real`, but destroys the streams and frees the memory that the program has in the context.
CUresult release_primary(CUdevice device, const Call& real);
CUresult reset_primary(CUdevice device, const Call& real);

// Periodic maintenance: releases the interposer's reference to the primary context once no memory needs it.
void tend_primary(Process& process, CUdevice device);

}  // namespace sharedgpu::hooks
