// SPDX-License-Identifier: Apache-2.0
// Records of a ledger for tests: a job, and leases of its step.
#pragma once

#include <sys/types.h>

#include <chrono>

#include "arbiter/ledger/records.h"

namespace sharedgpu::test {

inline const GpuUuid kGpus[] = {{{1}}, {{2}}};
inline const StepName kStep{.job = 9, .step = 0};
inline const Record kBoot{.at = std::chrono::seconds(1),
                          .what = BootRecord{.boot_id = "b-1", .booted = std::chrono::seconds(1700000000)}};

inline std::uint64_t even_ones_live(pid_t pid) { return pid % 2 == 0 ? 1 : 0; }

inline Record job_record(Nanoseconds at, std::uint64_t id, std::uint32_t job) {
  TenantRecord record{.tenant = TenantId{id}, .name = {}, .uid = 1000};
  record.name.job = job;
  return {.at = at, .what = record};
}
inline Record lease(bool grant, Nanoseconds at, std::uint64_t tenant = 1, StepName step = kStep,
                    const GpuUuid& gpu = kGpus[0]) {
  return {.at = at,
          .what = LeaseRecord{.grant = grant,
                              .epoch = Epoch{static_cast<std::uint64_t>(at.count())},
                              .key = {.tenant = TenantId{tenant}, .gpu = gpu, .step = step}}};
}

}  // namespace sharedgpu::test
