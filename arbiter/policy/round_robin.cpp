// SPDX-License-Identifier: Apache-2.0
#include <tuple>

#include "arbiter/policy/policy.h"

namespace sharedgpu {
namespace {

class RoundRobin final : public Policy {
 public:
  std::string_view name() const override { return "round-robin"; }

  bool serves_first(const TenantView& a, const TenantView& b) const override {
    if (a.urgent != b.urgent) return a.urgent;
    if (a.interrupted != b.interrupted) return a.interrupted;
    return std::tie(a.waiting_since, a.tenant) < std::tie(b.waiting_since, b.tenant);
  }

  // Within a turn, whom the turn was begun for keeps it, and who grows out of the running set leaves it. When
  // the turn is over, who came last has had least of it.
  bool keeps_rather(const TenantView& a, const TenantView& b, bool turn_over) const override {
    if (a.idle != b.idle) return b.idle;
    if (turn_over) return std::tie(b.opened, b.tenant) < std::tie(a.opened, a.tenant);
    if (a.leads != b.leads) return a.leads;
    if (a.grows != b.grows) return b.grows;
    return std::tie(a.opened, a.tenant) < std::tie(b.opened, b.tenant);
  }
};

}  // namespace

std::unique_ptr<Policy> make_round_robin() { return std::make_unique<RoundRobin>(); }

}  // namespace sharedgpu
