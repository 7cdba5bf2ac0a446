// SPDX-License-Identifier: Apache-2.0
// A timeline of the ledger as a trace for Perfetto and Chrome, and as an SVG picture.
//
// Pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "arbiter/ledger/timeline.h"

namespace sharedgpu::cli {

struct Trace {
  struct Tenant {
    std::string label;  // "job 21 (ann)"
    std::vector<GpuUuid> gpus;
  };
  std::string host;
  std::map<TenantId, Tenant> tenants;  // the tenants of all spans
  std::vector<Span> spans;             // ordered by their begin
};

// JSON of the Trace Event Format, with times in microseconds since 1970. In the trace, each GPU and each
// tenant appears as a process. A GPU has a thread for each of its tenants. A tenant has a thread for its
// leases on each GPU, and a thread for each other kind of span.
std::string trace_as_json(const Trace& trace);

// A row for each GPU and tenant, on an axis of local time.
std::string trace_as_svg(const Trace& trace);

}  // namespace sharedgpu::cli
