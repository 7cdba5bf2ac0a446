// SPDX-License-Identifier: Apache-2.0
// The queue of tenants that wait for a turn, in the order in which the planner serves them. Pure; not
// thread-safe.
#pragma once

#include <tuple>
#include <vector>

#include "arbiter/core/model/model.h"
#include "arbiter/core/turns/gangs.h"
#include "arbiter/policy/policy.h"

namespace sharedgpu {

struct InLine {
  const Tenant* tenant;
  bool ordered;   // the coordinator of the tenant's gang has ordered the gang to enter
  bool for_host;  // the tenant must be recalled for its host memory
  Rank rank;
  Nanoseconds waited;
  TenantId place;  // of otherwise equal tenants, the lower number comes first

  // The tenant that compares greatest is served first.
  bool operator<(const InLine& other) const {
    const auto order = [](const InLine& its) {
      return std::tie(its.ordered, its.for_host, its.rank, its.waited);
    };
    return order(*this) != order(other) ? order(*this) < order(other) : place > other.place;
  }
};

// Reorders the gangs in the queue among themselves, except those that were ordered to enter: the gang that
// has waited longest gets the first of the positions that the policy has given to these gangs. So all nodes
// serve gangs in the same order. If two nodes preferred different gangs, neither gang could begin.
void seat_gangs(std::vector<InLine>& line, const Gangs& gangs);

}  // namespace sharedgpu
