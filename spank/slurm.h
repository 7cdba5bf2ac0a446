// SPDX-License-Identifier: Apache-2.0
// Slurm's spank.h, for C++ that is compiled with hidden visibility: the hooks that it declares are ours to
// define and Slurm's to find.
#pragma once

#pragma GCC visibility push(default)
extern "C" {
#include <slurm/spank.h>
}
#pragma GCC visibility pop
