// SPDX-License-Identifier: Apache-2.0
// The part of the core's state at one moment from which ledger/figure_book.h computes the times and sizes of
// tenants. A sighting covers all sessions and tenants, or only those that an event concerned. Plain values.
#pragma once

#include <vector>

#include "protocol/messages.h"

namespace sharedgpu {

struct Sighting {
  struct Session {
    SessionId id;
    TenantId tenant;
    StepName step;
    bool wants = false;  // a thread waits at the session's gate
    // Footprint plus away memory, and memory that the session does not report (GpuSurvey::unreported).
    Bytes footprint;
    Bytes resident;  // on the GPU, including pinned memory and memory that the session does not report
    bool operator==(const Session&) const = default;
  };
  struct Tenant {
    TenantId id;
    // The tenant has no lease, but could get one: its sessions that want the GPU count as waiting.
    bool may_wait = false;
    bool enters = false;      // the tenant is chosen for a turn, and its gates are not open yet
    bool evicts = false;      // the tenant has not yet evicted all memory that it was ordered to evict
    bool leaves = false;      // the tenant's gates are closed, and it still holds a lease
    Nanoseconds turn_ends{};  // planned end of the last turn that the tenant has ended early; zero: none
    bool operator==(const Tenant&) const = default;
  };

  bool whole = false;             // all sessions are listed, so a session that is not listed has ended
  std::vector<Session> sessions;  // sorted by id
  std::vector<Tenant> tenants;    // includes the tenants of all listed sessions
};

}  // namespace sharedgpu
