// SPDX-License-Identifier: Apache-2.0
// The text of `sharedgpu status --json`; docs/status-json.md tells what the fields mean.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "arbiter/core/core.h"
#include "arbiter/ledger/figure_book.h"
#include "arbiter/ledger/tenants.h"
#include "config/settings.h"
#include "protocol/channel.h"

namespace sharedgpu {

struct StatusView {
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

// A sealed memfd that holds `text`. Returns 0 or an errno value.
int make_sealed_text(const std::string& text, UniqueFd& fd);

}  // namespace sharedgpu
