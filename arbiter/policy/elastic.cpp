// SPDX-License-Identifier: Apache-2.0
// elastic: each tenant has a request and a limit, in parts of the GPU's time (Gemini, section 3.5). Of those
// that have work, requests are met first; where they are more than there is, each gets the same part of its
// own. The rest goes to all by their units, to none beyond its limit.
//
// What is due to a tenant is entered into its account as time passes, and what it has is paid from it: so who
// was given too much, since its kernels outlast its turns, has less afterwards. The account reaches back for
// a window of 10 s: it holds no more than is due in one, no more debt than one, and in pauses it goes back to
// nothing within one. Who has most is next. A turn lasts until its tenant is half a step behind, so that
// accounts stay within about a step of each other, and shares are exact over any time in which one is little.
// A step is as short as handoffs allow: 15 ms where no memory moves.
//
// Tenants that have stated shares have the GPU one at a time, also while memory suffices for all: their
// kernels would share it by rules of its own. The others run together.
//
// Nobody starves: a tenant waits at most for as long as the deepest debt takes to be earned back, so the
// window divided by what is due to it, and for a turn of each other. What the units of all of them leave to
// it is due to it at least, however small its request, and its limit at most.
#include <algorithm>

#include "arbiter/policy/policy.h"

namespace sharedgpu {
namespace {

using std::chrono::duration_cast;

constexpr std::chrono::seconds kWindow{10};
constexpr std::chrono::milliseconds kLeastStep{15};
constexpr std::chrono::microseconds kTick{1};  // in less than this accounts may not move at all
constexpr double kAll = 1 - 1e-9;

Nanoseconds times(Nanoseconds time, double factor) {
  return Nanoseconds(static_cast<Nanoseconds::rep>(static_cast<double>(time.count()) * factor));
}

bool limited(double due, double limit) { return limit < kAll && due >= limit * kAll; }
bool limited(const TenantView& tenant) { return limited(tenant.due, tenant.claims.limit); }

// Until its account is half a step below nothing, while it has the GPU.
Nanoseconds until_behind(const TenantView& tenant, const TurnView& turn) {
  const double falls = std::max(1 - tenant.due, 1e-3);
  const Nanoseconds left = tenant.credit + turn.turn.length / 2;
  return left > Nanoseconds{} ? times(left, 1 / falls) + kTick : Nanoseconds{};
}

class Elastic final : public Policy {
 public:
  std::string_view name() const override { return "elastic"; }

  Rank rank(const TenantView& waiting, const TurnView& /*turn*/) const override {
    return {.level = 0, .weight = waiting.credit};
  }

  bool goes_on(const TenantView& running, const TenantView& waiting,
               const TurnView& /*turn*/) const override {
    return running.credit > waiting.credit;
  }

  bool rules_time(const Claims& claims) const override { return claims.timed; }

  std::vector<double> shares(const std::vector<Claims>& competing) const override {
    std::vector<double> shares;
    double requested = 0;
    for (const Claims& claims : competing) requested += std::min(claims.request, claims.limit);
    const double met = requested > 1 ? 1 / requested : 1;
    for (const Claims& claims : competing) shares.push_back(met * std::min(claims.request, claims.limit));
    double rest = 1 - met * requested;
    // Each round but the last brings somebody to its limit.
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

  TurnLength length(const TurnRules& rules, Nanoseconds handoff, unsigned waiting_sets) const override {
    return turn_length(rules, handoff, waiting_sets, kLeastStep);
  }

  Nanoseconds turn_left(const TenantView& leader, Nanoseconds had, const TurnView& turn) const override {
    if (turn.turn.rule == TurnRule::fixed) return turn.turn.length - had;
    const Nanoseconds behind = std::min(until_behind(leader, turn), turn.rules.max_wait);
    return std::max(behind, turn.turn.length / 4 - had);
  }

  Nanoseconds barred_for(const TenantView& waiting, const TurnView& /*turn*/) const override {
    if (!limited(waiting) || waiting.credit >= Nanoseconds{}) return {};
    return times(-waiting.credit, 1 / waiting.due) + kTick;
  }

  Nanoseconds allowed_for(const TenantView& running, const TurnView& turn) const override {
    return limited(running) ? until_behind(running, turn) : Nanoseconds::max();
  }

  Nanoseconds credit_after(Nanoseconds credit, const Standing& standing, Nanoseconds time) const override {
    if (standing.pauses)
      return credit < Nanoseconds{} ? std::min(credit + time, Nanoseconds{})
                                    : std::max(credit - time, Nanoseconds{});
    if (!standing.counted) return credit;
    // A handoff is nobody's time; but a limit is a part of all of it.
    const bool passes = standing.leases > 0 || limited(standing.due, standing.limit);
    if (passes) credit += times(time, standing.due);
    if (standing.holds) credit -= time / std::max(standing.leases, 1u);
    const Nanoseconds most = standing.limit < kAll ? standing.turn : times(kWindow, standing.due);
    return std::clamp<Nanoseconds>(credit, -kWindow, std::max(most, standing.turn));
  }
};

}  // namespace

std::unique_ptr<Policy> make_elastic() { return std::make_unique<Elastic>(); }

}  // namespace sharedgpu
