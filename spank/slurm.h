// SPDX-License-Identifier: Apache-2.0
// Slurm's spank.h, for C++ compiled with hidden visibility: gives default visibility to the hooks, which
// spank.h declares and this plugin defines, so that Slurm can find them.
#pragma once

#pragma GCC visibility push(default)
extern "C" {
#include <slurm/spank.h>
}
#pragma GCC visibility pop
