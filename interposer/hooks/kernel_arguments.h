// SPDX-License-Identifier: Apache-2.0
// Reads a kernel's arguments: copies them, and finds the words in them that may be addresses. CUDA tells the
// sizes of arguments, but not their types, so every aligned word in the range of device addresses may be an
// address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "interposer/session/residence.h"

namespace sharedgpu::hooks {

// `kernel` is a CUfunction or CUkernel, `parameters` and `extra` are the arguments of cuLaunchKernel. If the
// driver (before CUDA 12.4) does not know the sizes of the arguments, the result lacks the words of the
// arguments in `parameters`.
std::vector<session::Argument> kernel_arguments(std::uintptr_t kernel, std::uintptr_t parameters,
                                                std::uintptr_t extra);

// A copy of a kernel's arguments, with which the kernel can be launched at any time.
struct ArgumentCopy {
  std::vector<std::byte> bytes;
  std::vector<std::size_t> offsets;  // where each argument begins in `bytes`
  bool as_buffer = false;            // true: the arguments came in one buffer, and `offsets` is empty
};
// Takes the same arguments as kernel_arguments(). Returns nullopt if the driver does not know the sizes, or
// the arguments are invalid.
std::optional<ArgumentCopy> copy_arguments(std::uintptr_t kernel, std::uintptr_t parameters,
                                           std::uintptr_t extra);

}  // namespace sharedgpu::hooks
