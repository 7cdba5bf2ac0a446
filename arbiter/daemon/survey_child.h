// SPDX-License-Identifier: Apache-2.0
// The part of a survey that asks NVML, in a child process (driver_child.h), and the lines of its answers.
//
// An answer is a line for each GPU, followed by those of its processes, and at last an end. Lines have one
// size.
#pragma once

#include <cstdint>

#include "arbiter/daemon/system.h"
#include "protocol/units.h"

namespace sharedgpu {

struct SurveyLine {
  enum class Kind : std::uint32_t { gpu = 1, process, end };
  static constexpr std::uint64_t kUnknown = ~0ull;  // what NVML itself says where it cannot tell

  Kind kind = Kind::end;
  std::uint32_t pid = 0;   // of a process, in the PID namespace of the host
  GpuUuid gpu = {};        // of a GPU
  std::uint64_t used = 0;  // bytes, of the GPU or the process
  std::uint64_t free = 0;  // bytes of the GPU
};

inline constexpr unsigned kMostSurveyedGpus = 64;
inline constexpr unsigned kMostSurveyedProcesses =
    1024;  // of one GPU and kind; of a GPU with more nothing is told

// Answers each byte that comes from `end`, there. Returns when the other side is gone, and at once where NVML
// is not there or does not start.
void answer_surveys(const System& system, int end);

}  // namespace sharedgpu
