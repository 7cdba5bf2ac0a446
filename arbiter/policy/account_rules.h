// SPDX-License-Identifier: Apache-2.0
// The rules of a tenant's account. The account counts the tenant's lag: the GPU time that it was entitled to
// and has not had. A policy chooses how a tenant earns and pays, and the bounds on its lag;
// scheduler/lag_account.h computes the account. Pure.
#pragma once

#include <algorithm>

#include "arbiter/policy/parts.h"
#include "arbiter/policy/views.h"

namespace sharedgpu {

struct AccountRules {
  enum class Earns : std::uint8_t {
    nothing,
    pauses,  // earns its share of the time in which it neither has the GPU nor asks for it
    share,   // earns its share of the domain's time, while others wait
    due,  // earns its share (the smallest on any of its GPUs), while tenants take turns and one of them has a
          // lease
  };
  enum class Pays : std::uint8_t {
    nothing,
    turns,          // pays for the time in which it has the GPU and others wait
    part_of_turns,  // also pays for the time in which it is entering; the tenants that have the GPU or are
                    // entering divide the payment
    due,  // while some tenants take turns, pays for its part, in proportion to `due`, of the time in which it
          // has the GPU
  };
  Earns earns = Earns::nothing;
  Pays pays = Pays::nothing;
  int overuse = 0;           // extra multiple that it pays for the time by which its work outlasts its turn
  int most_turns = 0;        // the bound on lag and debt, in turns
  Nanoseconds window{};      // if longer than these turns, it replaces them: debt is at most the window, and
                             // lag at most the tenant's share of the window
  Nanoseconds forgets_in{};  // a pause of this length reduces a debt to 1/e of it; zero: pauses forgive
                             // nothing
};

// Returns the most lag that a tenant's account can hold in a window. A tenant with a limit may later use time
// in which it had no turn, but at most a hundredth of a window.
constexpr Nanoseconds most_lag(const AccountRules& rules, double due, double limit) {
  return limit < kAll ? rules.window / 100 : scaled(rules.window, due);
}

// Returns true if the account is nearly at the largest lag that it can hold.
constexpr bool is_full(const AccountRules& rules, Nanoseconds lag, const TenantView& tenant) {
  constexpr double kFull = 0.9;
  return lag > Nanoseconds{} && lag >= scaled(most_lag(rules, tenant.due, tenant.claims.limit), kFull);
}

// Returns the lag that a tenant had when its turn began, `elapsed` ago.
constexpr Nanoseconds lag_when_served(const TenantView& tenant, Nanoseconds elapsed) {
  return tenant.lag + scaled(elapsed, 1 - tenant.due);
}

// Returns how long a waiting tenant takes to earn `amount` if it earns the fraction `due` > 0 of the time. A
// microsecond is added, so that rounding does not make the result too short.
constexpr Nanoseconds time_to_earn(Nanoseconds amount, double due) {
  return scaled(amount, 1 / due) + std::chrono::microseconds(1);
}

// Returns the tenant's lag for comparison with other tenants. Full accounts count as equal, so that the
// tenant that has waited longest is next. Otherwise, of two tenants with full accounts, the one with the
// smaller share would never be first.
constexpr Nanoseconds lag_in_line(const AccountRules& rules, const TenantView& tenant) {
  return is_full(rules, tenant.lag, tenant) ? std::max<Nanoseconds>(rules.window, tenant.lag) : tenant.lag;
}

}  // namespace sharedgpu
