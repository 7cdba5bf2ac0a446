// SPDX-License-Identifier: Apache-2.0
// What a scheduling policy decides, and all that it sees for it.
//
// The core knows what is possible (what fits, who is stuck, who has let go); a policy only orders tenants.
// How long turns are is in turn_length.h, who may interrupt one in credit.h, when idleness ends one in
// idleness.h. All of it is pure: no state, no clock. One file each.
#pragma once

#include <memory>
#include <string_view>

#include "protocol/units.h"

namespace sharedgpu {

struct TenantView {
  TenantId tenant;
  Nanoseconds waiting_since{};  // of a tenant that waits
  bool urgent = false;  // it may interrupt: it has credit for that (credit.h), or its host memory runs short
  bool interrupted = false;  // another's interruption ended its turn
  Nanoseconds opened{};      // when its gates were last opened
  bool leads = false;        // this turn was begun for it
  bool grows = false;        // it asks for memory that the running set has no room for
  bool idle = false;         // it has had nothing to do for longer than a handoff takes
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
};

// Waiting tenants are served in the order in which they began to wait; before them who has been interrupted,
// and first of all who has credit. That passes nobody for ever: credit is used up by being served, and of an
// interrupted turn only the rest is given.
std::unique_ptr<Policy> make_round_robin();

}  // namespace sharedgpu
