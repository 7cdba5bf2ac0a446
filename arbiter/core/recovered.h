// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "arbiter/core/model/lease_book.h"
#include "arbiter/core/snapshot.h"

namespace sharedgpu {

// The state that the previous arbiter has left in the ledger. A starting arbiter reads it.
struct Recovered {
  LeaseBook leases;
  std::map<TenantId, Placement> placements = {};
  Nanoseconds last_record{};       // when the previous arbiter last wrote to the ledger
  unsigned expected_sessions = 0;  // number of sessions that were attached at `last_record` and whose
                                   // processes are alive
  Epoch last_epoch;
};

}  // namespace sharedgpu
