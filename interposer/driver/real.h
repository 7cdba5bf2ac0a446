// SPDX-License-Identifier: Apache-2.0
// The real driver libraries libcuda.so.1 and libnvidia-ml.so.1, and pointers to their functions.
//
// Each library is loaded at its first use, not together with the interposer. If this driver does not have a
// function, the pointer is null. Thread-safe. Needs no cuda.h; see call.h.
#pragma once

#include <optional>

#include "interposer/driver/functions.h"

namespace sharedgpu::driver {

// The function's address in the real library, which is loaded if necessary; null if the library cannot be
// loaded, or does not have the function.
void* real(Function function);

// Returns the address like real(), but does not load the library: returns null also while the library is not
// loaded.
void* real_if_loaded(Function function);

// The function of libcuda that the real driver exports at `address`; nullopt if no function of the table is
// there, or libcuda is not loaded.
std::optional<Function> find_address(const void* address);

// glibc's dlsym, or the dlsym of the next library that wraps glibc's.
using Dlsym = void* (*)(void* handle, const char* name);
Dlsym real_dlsym();

// Makes the library at `path` the real libcuda from now on. Only tests call it.
void use_library(const char* path);
// Uses `address` for this function from now on, and returns its previous address. Only tests call it.
void* replace(Function function, void* address);

}  // namespace sharedgpu::driver
