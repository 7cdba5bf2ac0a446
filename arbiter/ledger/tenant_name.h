// SPDX-License-Identifier: Apache-2.0
// The identity of a tenant: a Slurm job, a run of `sharedgpu run`, or a single process outside of both. Plain
// values.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "protocol/messages.h"

namespace sharedgpu {

// A process. The start time distinguishes the process from others that had the same pid.
struct ProcessName {
  std::uint32_t pid = 0;
  std::uint64_t started = 0;  // in clock ticks since the host's boot
  auto operator<=>(const ProcessName&) const = default;
};

// Exactly one of the three members is set.
struct TenantName {
  std::uint32_t job = 0;
  RunToken run;
  ProcessName process;
  auto operator<=>(const TenantName&) const = default;

  bool is_job() const { return job != 0; }
  bool is_run() const { return run != RunToken{}; }
};

// "job 1234", "run 7", "process 4711", or "job 21_1" for an element of a job array, as users know it.
std::string label_of(const TenantName& name, TenantId id, const ArrayElement& element);

}  // namespace sharedgpu
