// SPDX-License-Identifier: Apache-2.0
// The events that the core handles. Plain values.
#pragma once

#include <map>
#include <optional>
#include <variant>

#include "arbiter/core/memory/gpu_survey.h"
#include "arbiter/core/model/gang.h"
#include "arbiter/core/model/model.h"
#include "arbiter/core/placement.h"
#include "arbiter/policy/policy.h"
#include "protocol/messages.h"

namespace sharedgpu {

struct GpuFound {
  GpuUuid gpu;
  Bytes total;
  Bytes capacity;
  bool learned = false;  // only sessions told of it
  std::optional<unsigned> minor = {};
};

// The driver tells another condition of the GPU than before. A GPU that is lost drops its sessions, and their
// leases there end.
struct GpuChanged {
  GpuUuid gpu;
  GpuCondition condition = GpuCondition::healthy;
};

// An administrator wants no more tenants on the GPU, or takes that back.
struct GpuDrained {
  GpuUuid gpu;
  bool drained = false;
};

// A session was let in as `tenant`. Everything in `hello` but token and backend counts only where it resumes.
// To resume is to have been a session of an arbiter before.
struct SessionCame {
  SessionId session;
  TenantId tenant;
  StepName step;
  Bytes cap;              // the tenant's; zero: none
  Bytes host_cap = {};    // the same, on host memory for swap
  Claims claims = {};     // the tenant's
  bool expected = false;  // one of Recovered::expected_sessions
  std::uint32_t job = 0;  // the number of the tenant's job where that spans nodes; else zero
  Hello hello;
};

// Its process is dead, or as good as dead. Or it lives, and has come back on another connection: then `heir`
// is its session there, which has no GPU yet, and has from now on the GPU and the memory of this one. Zero:
// none.
struct SessionGone {
  SessionId session;
  SessionId heir = {};
};

struct CapSet {
  TenantId tenant;
  Bytes cap;
  Bytes host_cap = {};
  Claims claims = {};
};

// From now on these rule: on the GPUs that have rules of their own, those; on all others those of the node.
struct RulesSet {
  Rules node;
  std::map<GpuUuid, Rules> own = {};
};

// Processes of the tenant are about to start: it gets its GPUs, unless it has some already that they can
// open.
struct Place {
  TenantId tenant;
  Demand demand;
};

// Nobody is left who knows of the tenant's placement.
struct Unplace {
  TenantId tenant;
};

// The answer to a Look: whether all of the session's process is stopped.
struct Looked {
  SessionId session;
  bool stopped = false;
  bool suspended = false;  // it is, by root
};

// The tenant's processes are about to be stopped: they have a moment to let go of the GPU. Or they no longer
// are.
struct Suspend {
  TenantId tenant;
  bool suspended = false;
};

// A survey of the GPU has come. None: surveys do not show that GPU any more, and what sessions say is all
// that is known.
struct Surveyed {
  GpuUuid gpu;
  std::optional<GpuSurvey> found;
};

// One of Attach, Usage, Want, Idle, GiveBack, Ready, Released, MemoryQuery, Deadlines, as the session sent
// it.
template <class Body>
struct From {
  SessionId session;
  Body body;
};

// The time that ArmTimer asked for has come.
struct TimerFired {};

using Event = std::variant<GpuFound, GpuChanged, GpuDrained, SessionCame, SessionGone, CapSet, Place, Unplace,
                           RulesSet, From<Attach>, From<Usage>, From<Want>, From<Idle>, From<GiveBack>,
                           From<Ready>, From<Released>, From<MemoryQuery>, From<Deadlines>, Looked, Suspend,
                           GangOrdered, Surveyed, TimerFired>;

}  // namespace sharedgpu
