// SPDX-License-Identifier: Apache-2.0
// Finds the words in a kernel's arguments that may be addresses. CUDA tells the sizes of arguments, but not
// their types, so every aligned word in the range of device addresses counts.
#pragma once

#include <cstdint>
#include <vector>

#include "interposer/session/residence.h"

namespace sharedgpu::hooks {

// `kernel` is a CUfunction or CUkernel, `parameters` and `extra` are the arguments of cuLaunchKernel. Empty
// if the driver (before CUDA 12.4) does not know the sizes of the arguments.
std::vector<session::Argument> kernel_arguments(std::uintptr_t kernel, std::uintptr_t parameters,
                                                std::uintptr_t extra);

}  // namespace sharedgpu::hooks
