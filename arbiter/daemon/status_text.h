// SPDX-License-Identifier: Apache-2.0
// The text of `sharedgpu status --json`; docs/status-json.md describes its fields.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "arbiter/core/core.h"
#include "arbiter/daemon/system.h"
#include "arbiter/ledger/figure_book.h"
#include "arbiter/ledger/tenants.h"
#include "config/settings.h"
#include "protocol/channel.h"
#include "protocol/status.h"

namespace sharedgpu {

struct StatusView {
  const System& system;
  const Core& core;
  const Snapshot& state;  // of it, as of `now`
  const Tenants& tenants;
  const FigureBook& figures;
  const std::map<GpuUuid, std::string>& gpu_names;
  const std::map<SessionId, pid_t>& pids;
  const Settings& settings;
  Nanoseconds now{};
};

std::string format_status(const StatusView& view);

// Makes a sealed memfd that holds `text`.
Status make_sealed_text(const System& system, const std::string& text, UniqueFd& fd);

}  // namespace sharedgpu
