// SPDX-License-Identifier: Apache-2.0
// The rules of a tenant's account. The account counts the tenant's lag: the GPU time that the tenant was
// entitled to and has not had. A negative lag is a debt. A policy chooses how a tenant earns lag and pays for
// GPU time, and how large lag and debt may be. scheduler/lag_account.h computes the account. Pure.
#pragma once

#include <algorithm>

#include "arbiter/policy/parts.h"
#include "arbiter/policy/views.h"

namespace sharedgpu {

struct AccountRules {
  enum class Earns : std::uint8_t {
    nothing,
    pauses,  // if n running sets take turns, a tenant earns 1/n of the time in which it neither has the GPU
             // nor asks for it
    share,   // while tenants wait, a tenant earns its share of the domain's time (ActivityInterval::share)
    due,     // while tenants of the domain take turns and one of them has a lease, a tenant earns its share
             // of a GPU's time (ActivityInterval::due). A tenant at its limit earns even if none has a lease.
  };
  enum class Pays : std::uint8_t {
    nothing,
    turns,          // a tenant pays for the time in which it has the GPU and others wait
    part_of_turns,  // as for `turns`, and also while the tenant is entering. All tenants that have the GPU or
                    // are entering pay equal parts.
    // While some tenants take turns, a tenant pays for the time in which it has the GPU. Tenants that have
    // the GPU together divide the payment in proportion to `due`.
    due,
  };
  Earns earns = Earns::nothing;
  Pays pays = Pays::nothing;
  int overuse = 0;     // a tenant also pays this multiple of the time by which its work outlasts its turn
  int most_turns = 0;  // the bound on lag and debt, in turns
  // If the window is longer than `most_turns` turns, the window bounds the account: debt is at most the
  // window, and lag at most the tenant's share of the window.
  Nanoseconds window{};
  Nanoseconds forgets_in{};  // a pause of this length divides a debt by e (2.718); zero: pauses do not reduce
                             // debts
};

// Returns the largest lag that the window permits. A tenant with a limit may save unused time for later, but
// at most a hundredth of the window.
constexpr Nanoseconds most_lag(const AccountRules& rules, double due, double limit) {
  return limit < kAll ? rules.window / 100 : scaled(rules.window, due);
}

// Returns true if the lag is nearly the largest that the account can hold.
constexpr bool is_full(const AccountRules& rules, Nanoseconds lag, const TenantView& tenant) {
  constexpr double kFull = 0.9;
  return lag > Nanoseconds{} && lag >= scaled(most_lag(rules, tenant.due, tenant.claims.limit), kFull);
}

// Returns the lag that a tenant had when its gates were opened, which was `elapsed` ago.
constexpr Nanoseconds lag_when_served(const TenantView& tenant, Nanoseconds elapsed) {
  return tenant.lag + scaled(elapsed, 1 - tenant.due);
}

// Returns how long a waiting tenant takes to earn `amount` if it earns the fraction `due` > 0 of the time. A
// microsecond is added, so that rounding does not make the result too short.
constexpr Nanoseconds time_to_earn(Nanoseconds amount, double due) {
  return scaled(amount, 1 / due) + std::chrono::microseconds(1);
}

// Returns the tenant's lag for comparison with other tenants. All full accounts count as equal, so of the
// tenants with full accounts, the one that has waited longest is next. If full accounts were compared by lag,
// the tenant with the smallest share would never be next, since its account can hold the least lag.
constexpr Nanoseconds lag_in_line(const AccountRules& rules, const TenantView& tenant) {
  return is_full(rules, tenant.lag, tenant) ? std::max<Nanoseconds>(rules.window, tenant.lag) : tenant.lag;
}

}  // namespace sharedgpu
