// SPDX-License-Identifier: Apache-2.0
// The GPUs of this host, asked of NVML or of the driver.
#pragma once

#include <string>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu {

struct GpuInfo {
  GpuUuid uuid;
  Bytes total;
  std::string name;
};

// Asks in a child process, so that no context, library or device file of the driver stays in the daemon, and
// a driver that crashes or hangs (for more than some seconds) takes nobody with it. Empty where there is no
// driver or no GPU. Call it before threads are started.
std::vector<GpuInfo> find_gpus();

}  // namespace sharedgpu
