// SPDX-License-Identifier: Apache-2.0
#include "arbiter/policy/entitlement.h"

#include "arbiter/policy/parts.h"

namespace sharedgpu {
namespace {

std::vector<double> by_units(const std::vector<Claims>& competing) {
  double units = 0;
  for (const Claims& claims : competing) units += claims.units;
  std::vector<double> shares;
  for (const Claims& claims : competing) shares.push_back(claims.units / units);
  return shares;
}

std::vector<double> by_requests(const std::vector<Claims>& competing) {
  std::vector<double> shares;
  double requested = 0;
  for (const Claims& claims : competing) requested += std::min(claims.request, claims.limit);
  const double met = requested > 1 ? 1 / requested : 1;
  for (const Claims& claims : competing) shares.push_back(met * std::min(claims.request, claims.limit));
  double rest = 1 - met * requested;
  // The loop ends: in each round except the last one, at least one tenant reaches its limit.
  for (std::size_t round = 0; round <= competing.size() && rest > 1 - kAll; ++round) {
    double units = 0;
    for (std::size_t i = 0; i < competing.size(); ++i)
      if (shares[i] < competing[i].limit * kAll) units += competing[i].units;
    if (units == 0) break;
    const double each = rest / units;
    for (std::size_t i = 0; i < competing.size(); ++i) {
      if (shares[i] >= competing[i].limit * kAll) continue;
      const double more = std::min(each * competing[i].units, competing[i].limit - shares[i]);
      shares[i] += more;
      rest -= more;
    }
  }
  return shares;
}

}  // namespace

std::vector<double> shares(const EntitlementRules& rules, const std::vector<Claims>& competing) {
  return rules.by_requests ? by_requests(competing) : by_units(competing);
}

}  // namespace sharedgpu
