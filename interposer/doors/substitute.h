// SPDX-License-Identifier: Apache-2.0
// Which of our wrappers stands for which export of the real driver.
#pragma once

#include "interposer/driver/functions.h"

namespace sharedgpu::doors {

// Our exported wrapper; null: the function has none.
void* wrapper(driver::Function function);

// What a program is to get instead of `address`, which the real driver's resolver has returned: the wrapper
// of exactly the export that lies there, or `address` itself. So it is right whatever name, version and flags
// the program had asked with.
void* substitute(void* address);

}  // namespace sharedgpu::doors
