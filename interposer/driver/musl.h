// SPDX-License-Identifier: Apache-2.0
// musl's own functions, in a program that uses musl instead of glibc.
//
// NVIDIA's driver does not work with musl. But a command in a container may use musl and preload this
// library. musl lacks dlvsym(), and its dlsym() would find the dlsym() that this library exports.
#pragma once

namespace sharedgpu::driver {

// The address of the function `name` in musl; null if this process does not use musl, or if musl does not
// have the function. Thread-safe.
void* find_in_musl(const char* name);

}  // namespace sharedgpu::driver
