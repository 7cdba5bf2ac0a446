// SPDX-License-Identifier: Apache-2.0
// Maps exports of the real driver to our wrappers.
#pragma once

#include "interposer/driver/functions.h"

namespace sharedgpu::doors {

// Our exported wrapper; null if the function has none.
void* wrapper(driver::Function function);

// The address that a program gets instead of `address`, which the real driver's resolver has returned: the
// wrapper of exactly that export, or `address` itself. Since the export is found by its address, the result
// is right whichever name, version and flags the program has requested.
void* substitute(void* address);

}  // namespace sharedgpu::doors
