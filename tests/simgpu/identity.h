// SPDX-License-Identifier: Apache-2.0
// The identity of the simulated device.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

namespace sharedgpu::simgpu {

inline constexpr char kDeviceName[] = "Simulated GPU";
inline constexpr int kDriverVersion = 13000;
inline constexpr int kComputeMajor = 9;
inline constexpr int kComputeMinor = 0;

// The UUID of the device. It is the same in all processes that share the state.
CUuuid device_uuid(const std::string& state);
// "GPU-xxxxxxxx-xxxx-...", as NVML and CUDA_VISIBLE_DEVICES write it.
std::string uuid_text(const CUuuid& uuid);
// The state file of the device with this number. CUDA_VISIBLE_DEVICES does not change the numbers.
std::string device_state(const std::string& state, unsigned number);
// The states of the devices that CUDA_VISIBLE_DEVICES names, in its order: by index, by UUID or by the
// beginning of a UUID. Entries after the first one that names no device are ignored.
std::vector<std::string> visible_states(const std::string& state, unsigned devices);
// Returns false if the attribute is unknown.
bool device_attribute(CUdevice_attribute attribute, int& value);

}  // namespace sharedgpu::simgpu
