// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES within a job. Its numbers count the job's GPUs from 0, as if the job could open no
// other device files; the driver alone would count the host's GPUs. So scripts that set it to the local rank
// distribute the job's GPUs among their processes, and never reach another job's GPU.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sharedgpu::session {

// The value of CUDA_VISIBLE_DEVICES for the driver. `given`: the job's GPUs, as UUIDs separated by commas;
// `asked`: the current value, null if it is not set. As with the driver's own numbers, a number out of range
// hides all entries after it. Returns nullopt if `asked` has entries that are not numbers: the variable then
// stays as it is.
std::optional<std::string> visible_devices(std::string_view given, const char* asked);

// Sets the variable accordingly if the arbiter has given the job GPUs. Called before the driver reads it.
void name_visible_devices();

}  // namespace sharedgpu::session
