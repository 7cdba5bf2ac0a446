// SPDX-License-Identifier: Apache-2.0
// sbatch and salloc, as the user: offer the options. Their values travel in the job's environment.
#include "spank/plugin.h"

namespace sharedgpu {

void allocator_init(spank_t spank) { register_options(spank); }

}  // namespace sharedgpu
