// SPDX-License-Identifier: Apache-2.0
// The interposer's settings from the environment; see docs/design/tenants.md.
#pragma once

#include "interposer/session/deadline_reports.h"
#include "protocol/messages.h"

namespace sharedgpu::session {

// The batch system whose options the user knows. `run`: the options of `sharedgpu run` itself, since the
// process belongs to a run that has a control group of its own, perhaps inside a Slurm job.
enum class BatchSystem { none, slurm, torque, openpbs, run };

struct Settings {
  char socket[108] = {};  // as long as sun_path
  RunToken token;
  Nanoseconds arbiter_timeout = std::chrono::seconds(5);
  bool fail_without_arbiter = false;
  // The end of a message about a process that cannot become managed: the consequence for its program.
  const char* outcome_if_unmanaged() const {
    return fail_without_arbiter ? "cuInit fails because of OnNoArbiter=fail" : "running as plain CUDA";
  }
  DeadlinePipe deadlines;
  BatchSystem batch = BatchSystem::none;
};

using Lookup = const char* (*)(const char* name);  // getenv, or a test's replacement
using Complain = void (*)(const char* name, const char* value, const char* expected);

// A variable that is missing or empty leaves the default. An invalid value also leaves the default, and is
// reported through `complain`.
Settings read_settings(Lookup lookup, Complain complain);

}  // namespace sharedgpu::session
