// SPDX-License-Identifier: Apache-2.0
// Reads a kernel's arguments: copies them, and finds the words in them that may be addresses. CUDA tells the
// sizes of arguments, but not their types, so every aligned word in the range of device addresses counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "interposer/session/residence.h"

namespace sharedgpu::hooks {

// `kernel` is a CUfunction or CUkernel, `parameters` and `extra` are the arguments of cuLaunchKernel. Empty
// if the driver (before CUDA 12.4) does not know the sizes of the arguments.
std::vector<session::Argument> kernel_arguments(std::uintptr_t kernel, std::uintptr_t parameters,
                                                std::uintptr_t extra);

// A copy of a kernel's arguments, with which the kernel can be launched at any time.
struct ArgumentCopy {
  std::vector<std::byte> bytes;
  std::vector<std::size_t> offsets;  // of the arguments in `bytes`
  bool as_buffer = false;            // the program has passed all arguments in one buffer; no offsets
};
// Takes the same arguments as kernel_arguments(). Returns nullopt if the driver does not know the sizes, or
// the arguments are invalid.
std::optional<ArgumentCopy> copy_arguments(std::uintptr_t kernel, std::uintptr_t parameters,
                                           std::uintptr_t extra);

}  // namespace sharedgpu::hooks
