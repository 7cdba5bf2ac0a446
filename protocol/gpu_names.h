// SPDX-License-Identifier: Apache-2.0
// GPUs as text, in the form of NVML and CUDA_VISIBLE_DEVICES. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "protocol/messages.h"

namespace sharedgpu {

// "GPU-01234567-89ab-cdef-0123-456789abcdef", and back.
std::string format_gpu(const GpuUuid& uuid);
bool parse_gpu(std::string_view text, GpuUuid& uuid);

// All of them, with commas between them.
std::string format_gpus(const GpuList& gpus);

// "0,3": device files by their numbers. Empty where the text is something else.
DeviceSet parse_devices(std::string_view text);

// Why a tenant that asked for `wanted` GPUs did not get as many; empty where it did, or where the arbiter has
// no say in it.
std::string shortfall(const GpuList& gpus, unsigned wanted);

}  // namespace sharedgpu
