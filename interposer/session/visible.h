// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES within a job. Numbers in the variable count the job's GPUs from 0, as if the host had
// no other GPUs. (The driver by itself would count all GPUs that the job can open.) So a script that sets the
// variable to the local rank of each process gives the job's GPUs to these processes, and never reaches a GPU
// of another job.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sharedgpu::session {

// The value of CUDA_VISIBLE_DEVICES for the driver. `given`: the job's GPUs, as UUIDs separated by commas;
// `asked`: the current value, null if it is not set. As in the driver, a number out of range hides its own
// entry and all entries after it. Returns nullopt if the first entry of `asked` is a UUID: the variable then
// stays as it is.
std::optional<std::string> visible_devices(std::string_view given, const char* asked);

// If the arbiter has given the job GPUs, sets CUDA_VISIBLE_DEVICES to the result of visible_devices(). Call
// it before the driver reads the variable.
void name_visible_devices();

}  // namespace sharedgpu::session
