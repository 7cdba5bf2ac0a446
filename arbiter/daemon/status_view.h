// SPDX-License-Identifier: Apache-2.0
// The state of the daemon's parts that `sharedgpu status --json` shows. The referenced objects outlive the
// view.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "arbiter/core/core.h"
#include "arbiter/daemon/device_claims.h"
#include "arbiter/daemon/health.h"
#include "arbiter/daemon/meters.h"
#include "arbiter/daemon/system.h"
#include "arbiter/daemon/unmanaged.h"
#include "arbiter/gang/members.h"
#include "arbiter/ledger/figure_book.h"
#include "arbiter/ledger/tenants.h"
#include "config/overrides.h"
#include "config/settings.h"
#include "protocol/channel.h"
#include "protocol/status.h"

namespace sharedgpu {

// Memory that a tenant reports, but that NVML (device memory) or the Linux kernel (host memory) does not
// show.
struct Overreported {
  DeviceClaims::Excess device;
  Bytes host;
};

struct StatusView {
  const System& system;
  const Core& core;
  const Snapshot& state;  // taken from `core` at `now`
  const Tenants& tenants;
  const FigureBook& figures;
  const std::map<GpuUuid, std::string>& gpu_names;
  const std::map<SessionId, pid_t>& pids;
  const std::set<SessionId>& deaf;  // sessions with unread messages, or without a connection
  // The sessions that falsely claim that they cannot evict for lack of host memory, and the host memory that
  // each could allocate.
  const std::map<SessionId, Bytes>& refuted;
  const std::map<TenantId, Overreported>& overreported;  // tenants without sessions have no entry
  const Settings& settings;
  const Overrides& overrides;
  Nanoseconds now{};
  const std::vector<UnmanagedProcess>& unmanaged;
  const std::map<GpuUuid, GpuState>& health;
  const std::map<GpuUuid, GpuMeters>& meters;
  const GangMembers& gangs;
  // The user whose tenants are shown; nullopt: all tenants are shown.
  std::optional<uid_t> viewer = {};

  bool shows(const TenantInfo& tenant) const { return !viewer || tenant.belongs_to(*viewer); }
};

}  // namespace sharedgpu
