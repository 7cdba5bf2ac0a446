// SPDX-License-Identifier: GPL-2.0-or-later
// For which releases of Slurm the layouts in this folder hold: they were compared in the sources of every
// series from 22.05 to 26.05. Headers of another release are refused here. A plugin loaded by another release
// than it was built for is refused by Slurm itself (plugin_version), and one that needs a function which the
// daemon lacks by the loader (all are resolved at load).
#pragma once

#include <slurm/slurm_version.h>

#ifndef SHAREDGPU_UNKNOWN_SLURM
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(22, 5, 0) || SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 6, 0)
#error \
    "sharedgpu knows the layouts of Slurm 22.05 to 26.05, and these headers are of another release. \
Compare slurm_shared/abi/ with its source, then configure with -DSHAREDGPU_UNKNOWN_SLURM=ON."
#endif
#endif
