// SPDX-License-Identifier: Apache-2.0
// How long: the length of turns, what tenants have earned of interruptions, how long idleness is borne.
#include <algorithm>
#include <utility>

#include "arbiter/core/actions.h"
#include "arbiter/policy/idleness.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::milliseconds kIdleNews{100};
constexpr std::chrono::seconds kHomeNews{3};
// What a tenant's way in takes is guessed from its size before it has been seen: bytes a second.
constexpr std::uint64_t kGuessedSpeed = 50'000'000'000;

struct Mean {
  Nanoseconds sum{};
  unsigned count = 0;
  Nanoseconds value() const { return count == 0 ? Nanoseconds{} : sum / count; }
  void add(Nanoseconds one) { sum += one, ++count; }
};

}  // namespace

Nanoseconds expected_handoff(const Tenant& tenant) {
  if (tenant.handoff > Nanoseconds{}) return tenant.handoff;
  Bytes size;
  for (const Session* session : tenant.sessions) size += session->use.swappable;
  return std::chrono::milliseconds(size.count / (kGuessedSpeed / 1000));
}

// A handoff to a running set takes about as long as the longest of its members'.
void Core::set_turn_length(Domain& domain) const {
  std::vector<Tenant*> waiting;
  std::vector<Tenant*> taking_turns;
  for (Tenant* tenant : domain.tenants) {
    if (tenant->taken || (tenant->phase == Phase::out && !waits(*tenant))) continue;
    if (tenant->phase == Phase::out) waiting.push_back(tenant);
    taking_turns.push_back(tenant);
  }
  Mean seen;
  Mean expected;
  begin_choice(domain);
  for (const std::vector<Tenant*>& set : sets_of(domain, taking_turns)) {
    Nanoseconds longest{};
    Nanoseconds longest_seen{};
    for (const Tenant* tenant : set) {
      longest_seen = std::max(longest_seen, tenant->handoff);
      longest = std::max(longest, expected_handoff(*tenant));
    }
    expected.add(longest);
    if (longest_seen > Nanoseconds{}) seen.add(longest_seen);
  }
  domain.turn = policy_->length(tuning_.turns, expected.value(),
                                static_cast<unsigned>(sets_of(domain, waiting).size()));
  domain.sets = static_cast<unsigned>(sets_of(domain, domain.tenants).size());
  for (Gpu* gpu : domain.gpus) {
    gpu->turn = domain.turn;
    if (seen.count > 0) gpu->handoff = seen.value();
  }
}

Nanoseconds Core::credit(const Tenant& tenant) const {
  if (tenant.credit_kept == now_) return tenant.credit;
  return policy_->credit_after(tenant.credit, tenant.standing, now_ - tenant.credit_kept);
}

// Brings it up to now, before what it follows from changes.
void Core::keep_credit(Tenant& tenant) const {
  tenant.credit = credit(tenant);
  tenant.credit_kept = now_;
}

// And keeps it within the policy's bounds.
void Core::add_credit(Tenant& tenant, Nanoseconds more) const {
  keep_credit(tenant);
  tenant.credit = policy_->credit_after(tenant.credit + more, tenant.standing, {});
}

// What counts for the credit until it changes.
void Core::note_standing(const Domain& domain, bool contended) const {
  const auto has = [this](const Tenant* tenant) {
    return tenant->phase == Phase::running || tenant->phase == Phase::leaving
               ? leases_.holds(tenant->id)
               : tenant->phase == Phase::entering;
  };
  const auto competes = [&](const Tenant* tenant) {
    return has(tenant) || (tenant->wants() && !absent(*tenant));
  };
  unsigned holders = 0;
  std::uint64_t units = 0;  // of those that compete
  for (const Tenant* tenant : domain.tenants) {
    if (has(tenant)) ++holders;
    if (competes(tenant)) units += tenant->claims.units;
  }
  for (Tenant* tenant : domain.tenants) {
    Standing standing;
    standing.pauses = tenant->phase == Phase::out && !tenant->wants();
    standing.comes_in = contended && tenant->phase == Phase::entering;
    standing.pays = contended && has(tenant) && !standing.comes_in;
    standing.overuses = standing.pays && tenant->phase == Phase::leaving;
    standing.sets = domain.sets;
    standing.turn = domain.turn.length;
    standing.holders = holders;
    standing.share = contended && competes(tenant)
                         ? static_cast<double>(tenant->claims.units) / static_cast<double>(units)
                         : 0;
    if (standing == tenant->standing) continue;
    keep_credit(*tenant);
    tenant->standing = standing;
    add_credit(*tenant, {});
  }
}

// What it evicted is in the way of its job, which the kernel would end for that. It waits for no turn: while
// it is short of memory it evicts no more, and says so every second. That it is may be a lie, hence the
// pause.
bool Core::must_come_home(const Tenant& tenant) const {
  const bool may = tenant.brought_home == Nanoseconds{} || now_ - tenant.brought_home >= tuning_.home_pause;
  return may && tenant.phase == Phase::out &&
         std::any_of(tenant.sessions.begin(), tenant.sessions.end(), [this](const Session* session) {
           return on_gpu(session) && session->host_short != Nanoseconds{} &&
                  now_ - session->host_short < kHomeNews;
         });
}

// Wakes the arbiter when the turn is over, or may be interrupted, and somebody waits.
void Core::watch_turn(const Domain& domain) {
  const Turn turn = turn_of(domain);
  auto still_waits = [this](const Tenant* tenant) { return waits(*tenant) || starved(*tenant); };
  if (!turn.begun || std::none_of(domain.tenants.begin(), domain.tenants.end(), still_waits)) return;
  wake_at(turn.began + domain.turn.length);
  for (const Tenant* tenant : domain.tenants)
    if (tenant->phase == Phase::running)
      wake_at(now_ + policy_->peace_left(view(*tenant), view(domain, turn)));
}

bool Core::idle_enough(const Tenant& tenant) const {
  if (tenant.phase != Phase::running) return false;
  return std::all_of(tenant.sessions.begin(), tenant.sessions.end(), [&](const Session* session) {
    if (!on_gpu(session) || session->stopped) return true;
    Nanoseconds least =
        idle_patience(session->gpu->turn.handoff, tenant.long_pauses, tuning_.idle_release, tuning_.idle_cap);
    // Sessions repeat themselves ever more rarely. One that says no more is at work again.
    Nanoseconds fresh = std::max<Nanoseconds>(2 * tuning_.idle_release, session->idle / 2 + kIdleNews);
    return session->idle > Nanoseconds{} && session->idle >= least && now_ - session->idle_told <= fresh;
  });
}

// A tenant asks for the GPU again, be it after a pause.
void Core::begin_burst(Tenant& tenant) const {
  if (tenant.used == Nanoseconds{} || now_ - tenant.left < tuning_.idle_release) return;
  tenant.burst = tenant.burst == Nanoseconds{} ? tenant.used : (3 * tenant.burst + tenant.used) / 4;
  tenant.used = {};
}

// A tenant asks for the GPU again.
void Core::end_pause(Tenant& tenant) {
  if (!std::exchange(tenant.idled, false)) return;
  const bool proved_long =
      std::all_of(tenant.sessions.begin(), tenant.sessions.end(), [&](const Session* session) {
        return !on_gpu(session) || was_long(now_ - tenant.left, session->gpu->turn.handoff);
      });
  tenant.long_pauses = proved_long ? std::min(tenant.long_pauses + 1, kMostLongPauses) : 0;
}

}  // namespace sharedgpu
