// SPDX-License-Identifier: Apache-2.0
#pragma once

// Marks a wrapper, which programs find under its own name. Everything else in the library is hidden, except
// dlsym (doors/dlsym.cpp).
#define SHAREDGPU_EXPORT extern "C" __attribute__((visibility("default"), used))
