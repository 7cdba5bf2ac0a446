// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/scheduler/lag_account.h"

#include <cmath>

namespace sharedgpu {
namespace {

using Earns = AccountRules::Earns;
using Pays = AccountRules::Pays;

Nanoseconds earned(const AccountRules& rules, const ActivityInterval& did, Nanoseconds time) {
  switch (rules.earns) {
    case Earns::nothing:
      return {};
    case Earns::pauses:
      return did.pauses ? time / std::max(did.sets, 1u) : Nanoseconds{};
    case Earns::share:
      return scaled(time, did.share);
    case Earns::due:
      // During a handoff no tenant has a lease, and tenants earn nothing. A tenant whose share is bounded by
      // its limit is an exception: it earns in handoffs, too, since a limit is a fraction of all time.
      return did.leases > 0 || limit_binds(did.due, did.limit) ? scaled(time, did.due) : Nanoseconds{};
  }
  return {};
}

// With Pays::due a tenant that has the GPU alone pays for all of its time. Tenants that have the GPU together
// divide the payment for this time in proportion to their shares. So the lags of tenants that run together
// fall in proportion to their shares, and the lags of waiting tenants rise by the same amount in total.
Nanoseconds paid(const AccountRules& rules, const ActivityInterval& did, Nanoseconds time) {
  switch (rules.pays) {
    case Pays::nothing:
      return {};
    case Pays::turns:
      return did.pays ? time : Nanoseconds{};
    case Pays::part_of_turns:
      return did.pays || did.comes_in ? time / std::max(did.holders, 1u) : Nanoseconds{};
    case Pays::due:
      if (!did.holds) return {};
      return scaled(time, did.due_to_holders > did.due ? did.due / did.due_to_holders : 1);
  }
  return {};
}

// In a pause, a tenant's debt falls as if the tenant waited, and a part of the debt is forgotten. The debt of
// a tenant with a limit falls only at the rate of the limit, since a limit also covers pauses. A positive lag
// falls by the length of the pause.
Nanoseconds after_pause(const AccountRules& rules, Nanoseconds lag, const ActivityInterval& did,
                        Nanoseconds time) {
  if (lag >= Nanoseconds{}) return std::max(lag - time, Nanoseconds{});
  if (did.limit < kAll) return std::min(lag + scaled(time, did.limit), Nanoseconds{});
  const double left =
      std::exp(-std::chrono::duration<double>(time) / std::chrono::duration<double>(rules.forgets_in));
  return std::min(scaled(lag, left) + scaled(rules.forgets_in, did.due * (1 - left)), Nanoseconds{});
}

}  // namespace

Nanoseconds lag_after(const AccountRules& rules, Nanoseconds lag, const ActivityInterval& did,
                      Nanoseconds time) {
  if (did.pauses && rules.forgets_in > Nanoseconds{}) return after_pause(rules, lag, did, time);
  if (rules.earns == Earns::due && !did.counted) return lag;
  lag += earned(rules, did, time) - paid(rules, did, time);
  if (did.overuses) lag -= rules.overuse * time;
  // The bounds allow the account to fall by the length of a turn at least, since it must be able to fall far
  // enough to end a long turn.
  const Nanoseconds turns = rules.most_turns * did.turn;
  const Nanoseconds most = std::max(most_lag(rules, did.due, did.limit), turns);
  return std::clamp(lag, -std::max(rules.window, turns), most);
}

}  // namespace sharedgpu
