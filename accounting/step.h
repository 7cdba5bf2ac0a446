// SPDX-License-Identifier: GPL-2.0-or-later
// Which step this slurmstepd runs, as the SPANK plugin in the same process knows it.
#pragma once

#include "spank/step.h"

namespace sharedgpu {

// Null where the step holds no sharedgpu units or the SPANK plugin is not loaded. What it points to stays for
// the life of the process.
SharedGpuStep* this_step();

}  // namespace sharedgpu
