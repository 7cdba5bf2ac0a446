// SPDX-License-Identifier: Apache-2.0
#pragma once

// A function that programs find under its own name: a wrapper, or dlsym. All else in the library is hidden.
#define SHAREDGPU_EXPORT extern "C" __attribute__((visibility("default"), used))
