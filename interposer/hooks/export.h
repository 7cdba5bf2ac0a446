// SPDX-License-Identifier: Apache-2.0
#pragma once

// Marks a function that programs find under its own name: a wrapper, or dlsym. Everything else in the library
// is hidden.
#define SHAREDGPU_EXPORT extern "C" __attribute__((visibility("default"), used))
