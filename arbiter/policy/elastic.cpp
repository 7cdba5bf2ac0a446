// SPDX-License-Identifier: Apache-2.0
#include "arbiter/policy/elastic.h"

#include <algorithm>
#include <cmath>

namespace sharedgpu {
namespace {

using std::chrono::duration_cast;

constexpr std::chrono::seconds kWindow{10};
constexpr std::chrono::milliseconds kLeastStep{15};
// What a tenant with a limit had no turn for it may make up for, while that is no more than a point of a
// window.
constexpr Nanoseconds kMostSaved = Nanoseconds(kWindow) / 100;
constexpr std::chrono::microseconds kTick{1};  // in less than this accounts may not move at all
constexpr double kAll = 1 - 1e-9;
// Debt is forgotten in pauses: what is left of it after this is 1/e.
constexpr std::chrono::seconds kForgetsIn{3};
// Who has so much of what its account can hold is as far behind as can be told.
constexpr double kFull = 0.9;
// By how many steps an account may fall in one turn, and how fast accounts are taken to fall at least.
constexpr int kStepsAtOnce = 2;
constexpr double kLeastFall = 0.05;
// A tenant says itself how long its submissions are: so much of a turn it gets by that at most.
constexpr std::chrono::seconds kLongestSubmission{1};

Nanoseconds times(Nanoseconds time, double factor) {
  return Nanoseconds(static_cast<Nanoseconds::rep>(static_cast<double>(time.count()) * factor));
}

bool limited(double due, double limit) { return limit < kAll && due >= limit * kAll; }
bool limited(const TenantView& tenant) { return limited(tenant.due, tenant.claims.limit); }

Nanoseconds most_of(double due, double limit) { return limit < kAll ? kMostSaved : times(kWindow, due); }

bool is_full(Nanoseconds credit, const TenantView& tenant) {
  return credit > Nanoseconds{} && credit >= times(most_of(tenant.due, tenant.claims.limit), kFull);
}

// In a pause what was had is earned back as it would be by waiting, and some of it forgotten; but not of a
// limit.
Nanoseconds after_pause(Nanoseconds credit, const Standing& standing, Nanoseconds time) {
  if (credit >= Nanoseconds{}) return std::max(credit - time, Nanoseconds{});
  if (standing.limit < kAll) return std::min(credit + times(time, standing.limit), Nanoseconds{});
  const double left = std::exp(-std::chrono::duration<double>(time) / kForgetsIn);
  return std::min(times(credit, left) + times(kForgetsIn, standing.due * (1 - left)), Nanoseconds{});
}

// The part of the time that a tenant which has the GPU pays for: all, or what is due to it of what is due to
// those that have it together. So none of them earns while it has it, and what some pay others earn.
double part_paid(const Standing& standing) {
  return standing.due_to_holders > standing.due ? standing.due / standing.due_to_holders : 1;
}

// A turn about as long as `length`, in which nothing has to be broken off: for as many submissions as come
// next to it, and one at least. They take now more, now less: when the turn is over none is under way that
// takes a quarter more than it should, and none is begun in that quarter.
Nanoseconds for_whole_submissions(Nanoseconds length, Nanoseconds submission) {
  const Nanoseconds each = std::min<Nanoseconds>(submission, kLongestSubmission);
  if (each == Nanoseconds{}) return length;
  const auto count = std::max<Nanoseconds::rep>((length + each / 2) / each, 1);
  return count * each + each / 4;
}

}  // namespace

// Of two whose accounts can hold no more the one to which less is due would never be next: they are equal,
// and who has waited longest is.
Nanoseconds Elastic::standing_in_line(const TenantView& tenant) {
  return is_full(tenant.credit, tenant) ? std::max<Nanoseconds>(kWindow, tenant.credit) : tenant.credit;
}

Nanoseconds Elastic::allowance(const TenantView& /*tenant*/, const TurnView& turn) const {
  return turn.turn.length / 2;
}

// Until its account is so far below nothing, while it has the GPU. Negative where it is already, so that what
// it has had and this come to the same all the time: what is reckoned from them must not move.
Nanoseconds Elastic::until_behind(const TenantView& tenant, const TurnView& turn) const {
  const double falls = std::max(1 - tenant.due, 1e-3);
  return times(tenant.credit + allowance(tenant, turn), 1 / falls) + kTick;
}

// The accounts of all who take turns may drift upwards together: who fits beside each of them has the GPU all
// the time, and owes more than an account can hold. So after some steps it counts who is ahead of whom, which
// goes_on() knows. Those whose accounts are full follow each other, and have the parts that are due to them
// if their turns are as long as these are.
Nanoseconds Elastic::at_once(const TenantView& tenant, Nanoseconds had, const TurnView& turn) const {
  const auto sets = static_cast<double>(turn.turn.waiting_sets + 1);
  const Nanoseconds when_it_began = tenant.credit + times(had, 1 - tenant.due);
  if (is_full(when_it_began, tenant)) return times(kStepsAtOnce * turn.turn.length, sets * tenant.due);
  return times(2 * kStepsAtOnce * allowance(tenant, turn), 1 / std::max(1 - tenant.due, kLeastFall));
}

Rank Elastic::rank(const TenantView& waiting, const TurnView& /*turn*/) const {
  return {.level = 0, .weight = standing_in_line(waiting)};
}

bool Elastic::goes_on(const TenantView& running, const TenantView& waiting, const TurnView& /*turn*/) const {
  return standing_in_line(running) > standing_in_line(waiting);
}

bool Elastic::rules_time(const Claims& claims) const { return claims.timed; }

std::vector<double> Elastic::shares(const std::vector<Claims>& competing) const {
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

TurnLength Elastic::length(const TurnRules& rules, Nanoseconds handoff, unsigned waiting_sets) const {
  TurnLength turn = turn_length(rules, handoff, waiting_sets, kLeastStep);
  // It is a step here. One of n with equal parts falls behind only as fast as the others' parts come to, so
  // it takes n / (n - 1) steps until its turn is over.
  const unsigned others = std::max(waiting_sets, 1u);
  if (turn.rule == TurnRule::max_wait) turn.length = turn.length * others / (others + 1);
  return turn;
}

Nanoseconds Elastic::turn_left(const TenantView& leader, Nanoseconds had, const TurnView& turn) const {
  if (turn.turn.rule == TurnRule::fixed) return turn.turn.length - had;
  const Nanoseconds longest = std::max(turn.rules.max_wait, turn.turn.length);
  const Nanoseconds most = std::min(longest, at_once(leader, had, turn));
  const Nanoseconds behind = std::min(until_behind(leader, turn), most - had);
  const Nanoseconds least = turn.turn.length / 4;
  return for_whole_submissions(std::max(had + behind, least), leader.submission) - had;
}

Nanoseconds Elastic::barred_for(const TenantView& waiting, const TurnView& /*turn*/) const {
  if (!limited(waiting) || waiting.credit >= Nanoseconds{}) return {};
  return times(-waiting.credit, 1 / waiting.due) + kTick;
}

Nanoseconds Elastic::allowed_for(const TenantView& running, const TurnView& turn) const {
  if (!limited(running)) return Nanoseconds::max();
  return for_whole_submissions(running.had + until_behind(running, turn), running.submission) - running.had;
}

Nanoseconds Elastic::credit_after(Nanoseconds credit, const Standing& standing, Nanoseconds time) const {
  if (standing.pauses) return after_pause(credit, standing, time);
  if (!standing.counted) return credit;
  // A handoff is nobody's time; but a limit is a part of all of it.
  const bool passes = standing.leases > 0 || limited(standing.due, standing.limit);
  if (passes) credit += times(time, standing.due);
  if (standing.holds) credit -= times(time, part_paid(standing));
  const Nanoseconds most = most_of(standing.due, standing.limit);
  // Room for a turn, or none that is longer would ever be over.
  return std::clamp(credit, -std::max<Nanoseconds>(kWindow, standing.turn), std::max(most, standing.turn));
}

}  // namespace sharedgpu
