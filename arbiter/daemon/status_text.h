// SPDX-License-Identifier: Apache-2.0
// The text of `sharedgpu status --json`; docs/status-json.md describes its fields.
//
// To add a field:
//   1. If the core knows the value, add a member to Snapshot (arbiter/core/snapshot.h), and set it in
//      core_views.cpp. If another part of the daemon knows the value, add a member to StatusView
//      (status_view.h), and set it in queries.cpp. If the value must outlive the tenant's last session or a
//      restart of the arbiter, add a figure (arbiter/ledger/figures.h).
//   2. Write the field in status_gpu.cpp, status_tenant.cpp, or status_text.cpp (the node). Names of fields
//      never change, because scripts rely on them.
//   3. Add the field to docs/status-json.md. If users should see the field, add it to the table of
//      arbiter/cli/status.cpp.
//   4. In tests/unit/arbiter/daemon, test the field's value in status_text.cpp and its type in
//      status_golden.cpp. Regenerate status_fields.golden (see tests/golden).
#pragma once

#include <string>

#include "arbiter/daemon/status_view.h"

namespace sharedgpu {

std::string format_status(const StatusView& view);

}  // namespace sharedgpu
