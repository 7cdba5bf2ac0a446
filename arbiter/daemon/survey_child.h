// SPDX-License-Identifier: Apache-2.0
// The part of a survey that asks NVML, in a child process (driver_child.h), and the lines of its answers.
//
// An answer is a line for the health of each GPU that NVML lists, then one for each GPU that tells of its
// memory, followed by those of its processes, and at last an end. Lines of errors come at any time. Lines
// have one size.
#pragma once

#include <cstdint>

#include "arbiter/daemon/system.h"
#include "protocol/units.h"

namespace sharedgpu {

struct SurveyLine {
  enum class Kind : std::uint32_t { gpu = 1, process, end, health, xid, ecc_error, status };
  static constexpr std::uint64_t kUnknown = ~0ull;  // what NVML itself says where it cannot tell

  Kind kind = Kind::end;
  std::uint32_t pid = 0;   // of a process, in the PID namespace of the host; of health: what NVML returns
  GpuUuid gpu = {};        // of a GPU
  std::uint64_t used = 0;  // bytes, of the GPU or the process; of an Xid: its number; of a status: that
                           // of health: ECC errors that were not corrected; of an end: all GPUs are told of
  std::uint64_t free = 0;  // bytes of the GPU
};

// What NVML returns, as far as it is looked at.
inline constexpr std::uint32_t kNvmlLost = 15;
inline constexpr std::uint32_t kNvmlResetRequired = 16;

inline constexpr unsigned kMostSurveyedGpus = 64;
inline constexpr unsigned kMostSurveyedProcesses =
    1024;  // of one GPU and kind; of a GPU with more nothing is told

// Answers each byte that comes from `end`, there. Returns when the other side is gone, and at once where NVML
// is not there or does not start.
void answer_surveys(const System& system, int end);

}  // namespace sharedgpu
