// SPDX-License-Identifier: Apache-2.0
// The energy counters and the utilization of the host's GPUs, as of the last survey.
//
// Event-loop thread only.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "arbiter/daemon/journal.h"
#include "arbiter/daemon/survey.h"

namespace sharedgpu {

struct GpuMeters {
  // NVML's counter, which begins at zero when the driver is loaded. Keeps its last value while there are no
  // surveys; nullopt if NVML has not reported it.
  std::optional<Energy> energy;
  std::optional<unsigned> utilization;  // percent; nullopt if the last survey does not show it
};

class Meters {
 public:
  explicit Meters(Journal& journal) : journal_(journal) {}

  // Call with each answer of the Survey, also with empty answers.
  void take(const std::vector<SurveyedGpu>& gpus);
  const std::map<GpuUuid, GpuMeters>& all() const { return meters_; }

 private:
  Journal& journal_;
  std::map<GpuUuid, GpuMeters> meters_;
};

}  // namespace sharedgpu
