// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/meters.h"

namespace sharedgpu {

void Meters::take(const std::vector<SurveyedGpu>& gpus) {
  for (auto& [uuid, meters] : meters_) meters.utilization.reset();
  for (const SurveyedGpu& gpu : gpus) {
    meters_[gpu.uuid].utilization = gpu.utilization;
    if (!gpu.energy) continue;
    meters_[gpu.uuid].energy = gpu.energy;
    journal_.read_energy(gpu.uuid, *gpu.energy);
  }
}

}  // namespace sharedgpu
