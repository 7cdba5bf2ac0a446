// SPDX-License-Identifier: Apache-2.0
// GPUs as text, in the form that NVML and CUDA_VISIBLE_DEVICES use. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "protocol/messages.h"

namespace sharedgpu {

// Writes and parses "GPU-01234567-89ab-cdef-0123-456789abcdef".
std::string format_gpu(const GpuUuid& uuid);
bool parse_gpu(std::string_view text, GpuUuid& uuid);

// Writes the UUIDs of all `gpus`, separated by commas.
std::string format_gpus(const GpuList& gpus);

// Parses the minor numbers of device files, such as "0,3". Returns an empty set for any other text, and if a
// number is above 63.
DeviceSet parse_devices(std::string_view text);

// Returns a text for the user: why a tenant that requested `wanted` GPUs got only `gpus`. Returns an empty
// text if the tenant got the number of GPUs that it requested, or if the arbiter does not choose the tenant's
// GPUs.
std::string shortfall(const GpuList& gpus, unsigned wanted);

}  // namespace sharedgpu
