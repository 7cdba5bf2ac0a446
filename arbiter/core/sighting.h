// SPDX-License-Identifier: Apache-2.0
// The part of the core's state that the figures of tenants are computed from (ledger/figure_book.h), at one
// moment. A sighting covers all sessions and tenants, or only those that an event concerned. Plain values.
#pragma once

#include <vector>

#include "protocol/messages.h"

namespace sharedgpu {

struct Sighting {
  struct Session {
    SessionId id;
    TenantId tenant;
    StepName step;
    bool wants = false;  // a thread waits at its gate
    Bytes footprint;     // including memory that it does not report, see GpuSurvey::unreported
    Bytes resident;      // on the GPU, including memory that cannot be swapped
    bool operator==(const Session&) const = default;
  };
  struct Tenant {
    TenantId id;
    bool may_wait =
        false;  // sessions that want the GPU wait for it: the tenant has no lease, and could have one
    bool leaves = false;      // the tenant's gates are closed, and it still holds a lease
    Nanoseconds turn_ends{};  // the end of the turn that it yielded last
    bool operator==(const Tenant&) const = default;
  };

  bool whole = false;             // all sessions are listed, so sessions that are missing are gone
  std::vector<Session> sessions;  // sorted by id
  std::vector<Tenant> tenants;    // includes the tenants of all these sessions
};

}  // namespace sharedgpu
