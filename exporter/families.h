// SPDX-License-Identifier: Apache-2.0
// Converts the status of an arbiter (docs/status-json.md) to Prometheus metrics; docs/metrics.md describes
// them.
//
// Pure functions; thread-safe.
//
// To add a metric:
//   1. If the status lacks the value, add it there by the steps in arbiter/daemon/status_text.h.
//   2. Read the field: a member of Status (status.h), and its row in fields() of status.cpp.
//   3. Add a row to kGpuMetrics or kTenantMetrics in families.cpp. A metric of both a tenant and a GPU, or
//      one with labels of its own, has a function there instead.
//   4. Test the metric in tests/unit/exporter/families.cpp and regenerate metrics.golden there (see
//      tests/golden). Copy its row into docs/metrics.md; the test prints the expected table.
#pragma once

#include <prometheus/metric_family.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "exporter/status.h"

namespace sharedgpu::exporter {

using UserName = std::function<std::string(uid_t)>;

// The metrics of an arbiter that answers. Metrics whose values the arbiter does not know are absent.
std::vector<prometheus::MetricFamily> families_of(const Status& status, const UserName& user_name);
// The metrics while the arbiter does not answer.
std::vector<prometheus::MetricFamily> families_without_arbiter();

}  // namespace sharedgpu::exporter
