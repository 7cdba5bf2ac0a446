// SPDX-License-Identifier: Apache-2.0
// The rules of a tenant's account. It counts the tenant's lag: the time of the GPU that is due to it and that
// it has not had. A policy chooses the rules of earning and paying, and the bounds; scheduler/lag_account.h
// computes it. Pure.
#pragma once

#include <algorithm>

#include "arbiter/policy/parts.h"
#include "arbiter/policy/views.h"

namespace sharedgpu {

struct AccountRules {
  enum class Earns : std::uint8_t {
    nothing,
    pauses,  // its part of the time in which it neither has the GPU nor asks for it
    share,   // its share of the domain's time, while others wait
    due,     // its due part of the time, on the GPU where that is smallest; only while tenants take turns and
             // one of them has a lease
  };
  enum class Pays : std::uint8_t {
    nothing,
    turns,          // the time in which it has the GPU and others wait
    part_of_turns,  // that, and the time in which it is brought in; all that do so pay it together
    due,            // while some take turns, its part of the time in which it has the GPU, by what is due
  };
  Earns earns = Earns::nothing;
  Pays pays = Pays::nothing;
  int overuse = 0;           // it pays so many times more for the time that its work outlasts its turn
  int most_turns = 0;        // the bound on lag and debt, in turns
  Nanoseconds window{};      // or what is due in this where that is more; debt: all of it
  Nanoseconds forgets_in{};  // in pauses 1/e of a debt is left after this; zero: pauses forgive nothing
};

// The most that such a tenant's account may hold by the window. A tenant with a limit may make up for time
// that it had no turn for, but for no more than a hundredth of a window.
constexpr Nanoseconds most_lag(const AccountRules& rules, double due, double limit) {
  return limit < kAll ? rules.window / 100 : scaled(rules.window, due);
}

// Its account holds so much that it is as far behind as can be told.
constexpr bool is_full(const AccountRules& rules, Nanoseconds lag, const TenantView& tenant) {
  constexpr double kFull = 0.9;
  return lag > Nanoseconds{} && lag >= scaled(most_lag(rules, tenant.due, tenant.claims.limit), kFull);
}

// The lag of a tenant that has had the GPU for `elapsed`, as it was when it was served.
constexpr Nanoseconds lag_when_served(const TenantView& tenant, Nanoseconds elapsed) {
  return tenant.lag + scaled(elapsed, 1 - tenant.due);
}

// The time that a tenant that waits takes to earn `amount`, if the part `due` of the time is due to it: more
// than zero. A microsecond is added, so that rounding does not make the result too early.
constexpr Nanoseconds time_to_earn(Nanoseconds amount, double due) {
  return scaled(amount, 1 / due) + std::chrono::microseconds(1);
}

// Its lag, as it counts against that of others. If two accounts are full, the tenant to which less is due
// would never be next: they are equal, and the one that has waited longest is next.
constexpr Nanoseconds lag_in_line(const AccountRules& rules, const TenantView& tenant) {
  return is_full(rules, tenant.lag, tenant) ? std::max<Nanoseconds>(rules.window, tenant.lag) : tenant.lag;
}

}  // namespace sharedgpu
