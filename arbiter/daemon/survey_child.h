// SPDX-License-Identifier: Apache-2.0
// The part of a survey that asks NVML, in a child process (driver_child.h), and the lines of its answers.
//
// An answer first has a line for the health of each GPU that NVML lists. Then, for each GPU that reports its
// memory, it has a line for the GPU and a line for each of its processes. The end line comes last. Lines of
// errors come at any time. All lines have the same size.
#pragma once

#include <cstdint>

#include "arbiter/daemon/system.h"
#include "protocol/units.h"

namespace sharedgpu {

struct SurveyLine {
  enum class Kind : std::uint32_t { gpu = 1, process, end, health, xid, ecc_error, status };
  static constexpr std::uint64_t kUnknown = ~0ull;  // NVML's own value for "unknown"

  Kind kind = Kind::end;
  std::uint32_t pid = 0;   // process: pid in the host's PID namespace; health: what NVML returns
  GpuUuid gpu = {};        // the GPU
  std::uint64_t used = 0;  // GPU or process: bytes; xid: its number; status: the status; health: uncorrected
                           // ECC errors; end: nonzero if the list of GPUs is complete
  std::uint64_t free = 0;  // GPU: bytes
};

// NVML's return codes that matter here.
inline constexpr std::uint32_t kNvmlLost = 15;
inline constexpr std::uint32_t kNvmlResetRequired = 16;

inline constexpr unsigned kMostSurveyedGpus = 64;
inline constexpr unsigned kMostSurveyedProcesses =
    1024;  // most processes of a GPU in one list; a GPU with more processes is not reported

// Answers each byte read from `end` with a survey. Returns when the other side is closed, and at once if NVML
// is missing or does not start.
void answer_surveys(const System& system, int end);

}  // namespace sharedgpu
