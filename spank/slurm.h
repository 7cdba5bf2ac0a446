// SPDX-License-Identifier: Apache-2.0
// Includes Slurm's spank.h in C++ files that are compiled with hidden visibility. Slurm must find the hooks
// that spank.h declares and this plugin defines, so this file gives them default visibility.
#pragma once

#pragma GCC visibility push(default)
extern "C" {
#include <slurm/spank.h>
}
#pragma GCC visibility pop
