// SPDX-License-Identifier: Apache-2.0
// The end of a context, and of all that the program had in it.
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

// Carries it out; what had been allocated in the context goes too. Where the driver refuses, nothing is lost.
CUresult destroy(Process& process, Destruction& destruction);

// The program gives a reference to the primary context back, as `real` does, or resets it. Where memory of
// the device's pools has to outlive that, a reference of ours keeps the context.
CUresult release_primary(Process& process, CUdevice device, const Call& real);
CUresult reset_primary(Process& process, CUdevice device, const Call& real);

// Now and then: gives our reference back where no memory needs it any more.
void tend_primary(Process& process, CUdevice device);

}  // namespace sharedgpu::hooks
