// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "arbiter/core/lease_book.h"
#include "arbiter/core/snapshot.h"

namespace sharedgpu {

// The state of its predecessor that a starting arbiter knows.
struct Recovered {
  LeaseBook leases;
  std::map<TenantId, Placement> placements = {};
  Nanoseconds last_record{};       // when the predecessor last wrote anything
  unsigned expected_sessions = 0;  // attached then, and their processes still live
  Epoch last_epoch;
};

}  // namespace sharedgpu
