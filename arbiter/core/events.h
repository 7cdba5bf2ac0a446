// SPDX-License-Identifier: Apache-2.0
// The events that the core handles. Plain values.
#pragma once

#include <map>
#include <optional>
#include <variant>

#include "arbiter/core/memory/gpu_survey.h"
#include "arbiter/core/model/gang.h"
#include "arbiter/core/model/model.h"
#include "arbiter/core/model/tuning.h"
#include "arbiter/core/placement.h"
#include "arbiter/policy/policy.h"
#include "protocol/messages.h"

namespace sharedgpu {

struct GpuFound {
  GpuUuid gpu;
  Bytes total;
  Bytes capacity;
  bool learned = false;  // the GPU is known only from messages of sessions
  std::optional<unsigned> minor = {};
};

// The driver reports a new condition of the GPU. If the GPU is lost, its sessions are dropped, and their
// leases there end.
struct GpuChanged {
  GpuUuid gpu;
  GpuCondition condition = GpuCondition::healthy;
};

// An administrator drains the GPU, so that no more tenants are placed on it, or undrains it.
struct GpuDrained {
  GpuUuid gpu;
  bool drained = false;
};

// A session of `tenant` was admitted. The core reads only the fields `resuming` and `backend` of `hello`. If
// the session was connected to an earlier arbiter (Hello::resuming), the core also reads `held`, `wants` and
// `epoch`.
struct SessionCame {
  SessionId session;
  TenantId tenant;
  StepName step;
  Bytes cap;                 // the tenant's limit on its footprint; zero: none
  Bytes host_cap = {};       // the tenant's limit on host memory for swap; zero: none
  bool oversize = false;     // the tenant may have away memory
  Claims claims = {};        // the GPU time and the priority of the tenant's job
  bool expected = false;     // Recovered::expected_sessions counts this session
  std::uint32_t job = 0;     // number of the tenant's job if the job spans several nodes; otherwise zero
  bool can_be_away = false;  // the session's library can keep memory away
  // The limits on evicted memory of the step and of the job, as the arbiter has read them from cgroups. They
  // apply until the session reports these limits itself (MemoryUse::host_limit, Usage::job_host_limit). Zero:
  // none or unknown.
  Bytes host_limit = {};
  Bytes job_host_limit = {};
  Hello hello;
};

// The session has ended: its process is dead, counts as dead, or has reconnected. If the process has
// reconnected, `heir` is its session on the new connection. The heir is not attached to a GPU yet, and takes
// over this session's GPU and memory. Otherwise `heir` is zero.
struct SessionGone {
  SessionId session;
  SessionId heir = {};
};

struct CapSet {
  TenantId tenant;
  Bytes cap;
  Bytes host_cap = {};
  bool oversize = false;
  Claims claims = {};
};

// Sets the rules of GPUs: `own` for the GPUs in it, `node` for all other GPUs.
struct RulesSet {
  Rules node;
  std::map<GpuUuid, Rules> own = {};
};

// Sets values of Tuning.
struct TuningSet {
  NodeTuning node;
};

// Sets how much memory of the GPU is handed out. Programs on the GPU have been told the old capacity, so the
// daemon lowers the capacity only while no session is on the GPU.
struct CapacitySet {
  GpuUuid gpu;
  Bytes capacity;
};

// Processes of the tenant are about to start. The tenant keeps its GPUs if they are healthy and these
// processes can open one of them; otherwise the core chooses GPUs for the tenant.
struct Place {
  TenantId tenant;
  Demand demand;
};

// Ends the tenant's placement, because no process is left that uses the placement.
struct Unplace {
  TenantId tenant;
};

// The answer to a Look: `stopped` is true if all threads of the session's process are stopped.
struct Looked {
  SessionId session;
  bool stopped = false;
  // The process belongs to a job step, and the user root has stopped it, as Slurm does in order to suspend
  // it.
  bool suspended = false;
};

// If `suspended`: Slurm is about to stop the tenant's processes, which have a short time to release the GPU.
// Otherwise: the suspension has ended.
struct Suspend {
  TenantId tenant;
  bool suspended = false;
};

// A survey has arrived. nullopt: the survey does not contain the GPU, so the core relies on the reports of
// sessions alone until a later survey contains the GPU.
struct Surveyed {
  GpuUuid gpu;
  std::optional<GpuSurvey> found;
};

// A message from a session: Attach, Usage, Want, Idle, GiveBack, Ready, Released, MemoryQuery or Deadlines.
template <class Body>
struct From {
  SessionId session;
  Body body;
};

// The time that ArmTimer requested has come.
struct TimerFired {};

using Event = std::variant<GpuFound, GpuChanged, GpuDrained, SessionCame, SessionGone, CapSet, Place, Unplace,
                           RulesSet, TuningSet, CapacitySet, From<Attach>, From<Usage>, From<Want>,
                           From<Idle>, From<GiveBack>, From<Ready>, From<Released>, From<MemoryQuery>,
                           From<Deadlines>, Looked, Suspend, GangOrdered, Surveyed, TimerFired>;

}  // namespace sharedgpu
