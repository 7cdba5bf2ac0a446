// SPDX-License-Identifier: Apache-2.0
// What a scheduling policy decides, and all that it sees for it.
//
// The core knows what is possible (what fits, who is stuck, who has let go); a policy only orders tenants and
// sets the length of a turn. Policies are pure: no state, no clock. One file each.
#pragma once

#include <memory>
#include <string_view>

#include "protocol/units.h"

namespace sharedgpu {

struct TenantView {
  TenantId tenant;
  Nanoseconds waiting_since{};  // of a tenant that waits
  Nanoseconds opened{};         // when its gates were last opened
  bool leads = false;           // this turn was begun for it
  bool grows = false;           // it asks for memory that the running set has no room for
  bool idle = false;            // it has had nothing to do for longer than a handoff takes
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;

  // Whether waiting tenant `a` is to be served before `b`. A strict weak order, under which no waiting tenant
  // may be passed for ever.
  virtual bool serves_first(const TenantView& a, const TenantView& b) const = 0;

  // Whether running tenant `a` is to keep its lease rather than `b` where both cannot. A strict weak order.
  virtual bool keeps_rather(const TenantView& a, const TenantView& b, bool turn_over) const = 0;

  // How long a turn lasts while others wait.
  virtual Nanoseconds quantum() const = 0;
};

// Waiting tenants are served in the order in which they began to wait; every turn lasts one quantum.
std::unique_ptr<Policy> make_round_robin(Nanoseconds quantum);

}  // namespace sharedgpu
