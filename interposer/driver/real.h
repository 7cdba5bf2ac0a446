// SPDX-License-Identifier: Apache-2.0
// The real driver: libcuda.so.1 and libnvidia-ml.so.1 below us, and pointers to their functions.
//
// Each is loaded at the first use, not when the interposer is. Safe from all threads. A function that this
// driver does not have is null. Needs no cuda.h; see call.h.
#pragma once

#include <optional>

#include "interposer/driver/functions.h"

namespace sharedgpu::driver {

// The function's address in the real library, loading that if need be; null: this driver does not have it.
void* real(Function function);

// The same, but null also while nobody has loaded the library.
void* real_if_loaded(Function function);

// The known function of libcuda whose real export is at `address`; nullopt: none.
std::optional<Function> find_address(const void* address);

// glibc's dlsym (or that of the next library that wraps it).
using Dlsym = void* (*)(void* handle, const char* name);
Dlsym real_dlsym();

// For tests: takes the real functions of libcuda from the library at `path` from now on.
void use_library(const char* path);
// For tests: takes this one from `address` from now on. Returns where it was.
void* replace(Function function, void* address);

}  // namespace sharedgpu::driver
