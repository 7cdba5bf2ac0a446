// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES within a job. Its numbers count the GPUs that the job was given, the first is 0, as
// where a job's device files are all that it can open; the driver alone would count the host's. Scripts that
// set it to the local rank so share the job's GPUs out among their processes, and never reach another's.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sharedgpu::session {

// What CUDA_VISIBLE_DEVICES is to be for the driver: `given` is what the job was given, UUIDs with commas
// between them; `asked` is the variable as it stands, null where it is not set. As with the driver's own
// numbers, one that is out of range hides what comes after it. Nothing where `asked` has other names than
// numbers: those it keeps.
std::optional<std::string> visible_devices(std::string_view given, const char* asked);

// Sets the variable accordingly where the arbiter gave the job GPUs. Before the driver looks at it.
void name_visible_devices();

}  // namespace sharedgpu::session
