// SPDX-License-Identifier: Apache-2.0
// srun, as the user: offers the options. Their values travel to slurmstepd with the launch message.
#include "spank/plugin.h"

namespace sharedgpu {

void local_init(spank_t spank) { register_options(spank); }

}  // namespace sharedgpu
