// SPDX-License-Identifier: Apache-2.0
// The destruction of a context, and of all that the program had in it.
#pragma once

#include <cuda.h>

#include "interposer/memory/memory.h"

namespace sharedgpu::hooks {

template <class Call>
class DestructionBy final : public Destruction {
 public:
  DestructionBy(CUcontext context, Call call) : Destruction(context), call_(call) {}
  CUresult carry_out() override { return call_(); }

 private:
  Call call_;
};

// Carries it out; what had been allocated in the context goes too. Where the driver refuses, nothing is lost.
CUresult destroy(Destruction& destruction);

}  // namespace sharedgpu::hooks
