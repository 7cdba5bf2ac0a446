// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES within a job. Numbers in the variable count the job's GPUs from 0, as if the job could
// open no other device files. The driver by itself would count the GPUs of the host. So scripts that set the
// variable to the local rank distribute the job's GPUs among their processes, and never reach a GPU of
// another job.
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

// Sets CUDA_VISIBLE_DEVICES to the value of visible_devices() if the arbiter has given the job GPUs. Called
// before the driver reads the variable.
void name_visible_devices();

}  // namespace sharedgpu::session
