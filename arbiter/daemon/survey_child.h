// SPDX-License-Identifier: Apache-2.0
// The child process (driver_child.h) that asks NVML for a survey, and the lines of its answers.
//
// An answer first has a line for the health of each GPU that NVML lists. After these lines, each GPU that
// reports its memory has a line for the GPU, a line for its meters and a line for each process on the GPU.
// The end line comes last. Lines about errors and changes of status may come before an answer or without one.
// All lines have the same size.
#pragma once

#include <cstdint>

#include "arbiter/daemon/system.h"
#include "protocol/units.h"

namespace sharedgpu {

struct SurveyLine {
  enum class Kind : std::uint32_t { gpu = 1, process, end, health, xid, ecc_error, status, meters };
  static constexpr std::uint64_t kUnknown = ~0ull;  // NVML's own value for "unknown"

  Kind kind = Kind::end;
  std::uint32_t pid = 0;  // by kind of line: process: pid in the host's PID namespace; health: NVML's return
                          // code
  GpuUuid gpu = {};       // the GPU
  // by kind of line: gpu, process: bytes used; health: uncorrected ECC errors; xid: the Xid; status: the
  // status; end: nonzero if the list of GPUs is complete; meters: energy in millijoules since the driver was
  // loaded
  std::uint64_t used = 0;
  std::uint64_t free = 0;  // gpu: bytes free; meters: utilization in percent
};

// Return codes of NVML.
inline constexpr std::uint32_t kNvmlLost = 15;
inline constexpr std::uint32_t kNvmlResetRequired = 16;

inline constexpr unsigned kMostSurveyedGpus = 64;
// Maximum number of processes in NVML's list for a GPU. A GPU with more processes is not reported.
inline constexpr unsigned kMostSurveyedProcesses = 1024;

// Answers each byte read from `end` with a survey. Returns when the daemon has closed the other end, when
// NVML does not start again, or at once if NVML is missing or does not start.
void answer_surveys(const System& system, int end);

}  // namespace sharedgpu
