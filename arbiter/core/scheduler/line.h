// SPDX-License-Identifier: Apache-2.0
// The line of tenants that wait for a turn: the order in which the planner serves them. Pure; not
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
  bool ordered;   // the coordinator of the tenant's gang has ordered the gang to enter: its turn has begun
  bool for_host;  // the tenant must be recalled for its host memory
  Rank rank;
  Nanoseconds waited;
  TenantId place;  // of otherwise equal tenants, the lower number comes first

  // The tenant that is served first is the greatest.
  bool operator<(const InLine& other) const {
    const auto order = [](const InLine& its) {
      return std::tie(its.ordered, its.for_host, its.rank, its.waited);
    };
    return order(*this) != order(other) ? order(*this) < order(other) : place > other.place;
  }
};

// The policy's ranks decide which places in the line belong to gangs. This function sorts the gangs among
// these places: the gang that has waited longest gets the first place. So the order of the gangs is the same
// on all nodes. If two nodes preferred different gangs, neither gang could begin.
void seat_gangs(std::vector<InLine>& line, const Gangs& gangs);

}  // namespace sharedgpu
