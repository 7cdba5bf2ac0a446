// SPDX-License-Identifier: GPL-2.0-or-later
// Checks the release of Slurm. The layouts in this folder are valid for the series from 22.05 to 26.05: they
// were compared with the sources of each series. This file refuses to compile with headers of other releases.
// Slurm itself refuses a plugin built for another release (plugin_version). The loader resolves all functions
// at load, and refuses a plugin that needs a function which the daemon lacks.
//
// To support a newer release:
//   1. Compare with the sources of the release: this folder, gres/gres_sharedgpu.cpp (the functions that a
//      GRES plugin must have), spank/suspension.cpp, accounting/usage_poller.cpp, arbiter/daemon/cgroups.h.
//   2. In this file, raise the limit, and the release that the error message names.
//      tests/unit/slurm_shared/check_release.sh expects the limit.
//   3. `git grep SLURM_VERSION_NUM` finds the code that differs between releases. Raise kNewestSlurm in
//      arbiter/cli/doctor_checks.cpp; tests/unit/arbiter/cli/doctor.cpp expects it.
//   4. Add a suite for the release to tests/cluster/release-root, and run the tests: `./check --releases`.
//   5. `git grep -F 26.05` finds the texts that state the newest release: docs/compatibility.md, README.md,
//      CHANGELOG.md and others.
#pragma once

#include <slurm/slurm_version.h>

#ifndef SHAREDGPU_UNKNOWN_SLURM
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(22, 5, 0) || SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 6, 0)
#error \
    "sharedgpu knows the layouts of Slurm 22.05 to 26.05, and these headers are of another release. \
Compare slurm_shared/abi/ with its source, then configure with -DSHAREDGPU_UNKNOWN_SLURM=ON."
#endif
#endif
