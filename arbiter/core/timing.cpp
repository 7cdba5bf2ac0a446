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
constexpr std::chrono::microseconds kLeastNap{1};
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
  const auto sets = static_cast<unsigned>(sets_of(domain, domain.tenants).size());
  for (Tenant* tenant : domain.tenants) {
    tenant->standing.sets = sets;
    tenant->standing.turn = domain.turn.length;
  }
  for (Gpu* gpu : domain.gpus) {
    gpu->turn = domain.turn;
    if (seen.count > 0) gpu->handoff = seen.value();
  }
}

// Brings every tenant's credit up to now, by the state that has been since the last event.
void Core::keep_credit() {
  for (auto& [id, tenant] : state_.tenants)
    tenant.credit = policy_->credit_after(tenant.credit, tenant.standing, now_ - credit_kept_);
  credit_kept_ = now_;
}

// What counts for the credit until the next event.
void Core::note_standing(const Domain& domain, bool contended, bool crowded) const {
  auto has = [this](const Tenant* tenant) {
    return tenant->phase == Phase::running || tenant->phase == Phase::leaving
               ? leases_.holds(tenant->id)
               : tenant->phase == Phase::entering;
  };
  unsigned holders = 0;
  unsigned leases = 0;
  bool counted = crowded;
  std::vector<Claims> competing;
  for (const Tenant* tenant : domain.tenants) {
    const bool its = has(tenant);
    holders += its ? 1 : 0;
    leases += its && tenant->phase != Phase::entering ? 1 : 0;
    counted = counted || tenant->timed;
    if (its || (tenant->wants() && !absent(*tenant))) competing.push_back(tenant->claims);
  }
  const std::vector<double> shares = policy_->shares(competing);
  auto next = shares.begin();
  for (Tenant* tenant : domain.tenants) {
    Standing& standing = tenant->standing;
    const bool its = has(tenant);
    const bool wants = tenant->wants() && !absent(*tenant);
    standing.pauses = tenant->phase == Phase::out && !tenant->wants();
    standing.comes_in = contended && tenant->phase == Phase::entering;
    standing.pays = contended && its && !standing.comes_in;
    standing.overuses = standing.pays && tenant->phase == Phase::leaving;
    standing.holders = holders;
    standing.due = its || wants ? *next++ : 0;
    standing.share = contended ? standing.due : 0;
    standing.counted = counted;
    standing.holds = its && tenant->phase != Phase::entering;
    standing.leases = leases;
    standing.limit = tenant->claims.limit;
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

// Wakes the arbiter when the turn is over, or may be interrupted, and somebody waits; and when one that runs
// has had all it may have.
void Core::watch_turn(const Domain& domain) {
  for (const Tenant* tenant : domain.tenants) {
    if (tenant->phase != Phase::running) continue;
    const Nanoseconds allowed = policy_->allowed_for(view(*tenant), view(domain, {}));
    if (allowed < std::chrono::hours(24)) wake_at(now_ + std::max<Nanoseconds>(allowed, kLeastNap));
  }
  const Turn turn = turn_of(domain);
  auto still_waits = [this](const Tenant* tenant) { return waits(*tenant) || starved(*tenant); };
  if (!turn.begun || std::none_of(domain.tenants.begin(), domain.tenants.end(), still_waits)) return;
  wake_at(now_ + turn.left);
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
