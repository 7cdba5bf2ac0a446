// SPDX-License-Identifier: Apache-2.0
// How long: the length of turns, what tenants have earned of interruptions, how long idleness is borne.
#include <algorithm>
#include <iterator>
#include <utility>

#include "arbiter/core/actions.h"
#include "arbiter/policy/idleness.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::milliseconds kIdleNews{100};
constexpr std::chrono::seconds kHomeNews{3};
constexpr std::chrono::microseconds kLeastNap{1};
constexpr std::chrono::microseconds kEndNews{100};
constexpr std::chrono::hours kLongestNap{24};
constexpr std::chrono::minutes kAccountIsKept{20};  // a debt of 10 s with a limit of a hundredth
// What a tenant's way in takes is guessed from its size before it has been seen: bytes a second.
constexpr std::uint64_t kGuessedSpeed = 50'000'000'000;

bool is_on(const Tenant& tenant, const Gpu& gpu) {
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(),
                     [&](const Session* session) { return session->gpu == &gpu; });
}

bool everybody(const Reckoned& /*its*/) { return true; }
bool who_waits(const Reckoned& its) { return its.waits; }
bool who_takes_turns(const Reckoned& its) { return its.turns.takes; }

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

Reckoned Core::reckoned_of(const Tenant& tenant) const {
  const bool waiting = waits(tenant) && !tenant.taken;
  return {.waits = waiting,
          .turns = {.takes = waiting || (tenant.phase != Phase::out && !tenant.taken),
                    .seen = tenant.handoff,
                    .expected = expected_handoff(tenant)}};
}

// Anew only where something has changed from which it follows.
void Core::set_turn_length(Domain& domain) const {
  begin_choice(domain);
  Domain::Stale& stale = domain.stale;
  for (Gpu* gpu : domain.gpus)
    if (std::exchange(gpu->reckoned, gpu->usable) != gpu->usable) stale.needs = true;
  for (Tenant* tenant : domain.tenants) {
    const Reckoned part = reckoned_of(*tenant);
    const Reckoned before = std::exchange(tenant->reckoned, part);
    if (part.waits != before.waits) stale.waiting = true;
    if (part.turns != before.turns) stale.turns = true;
    for (Session* session : tenant->sessions) {
      const Session::Part its{.needs = session->needs, .keeps = session->keeps};
      if (std::exchange(session->reckoned, its) != its) stale.needs = true;
    }
  }
  if (stale == Domain::Stale{false, false, false}) return;

  const auto count = [](const std::vector<Tenant*>& /*set*/) {};
  if (stale.needs) domain.sets = for_each_set(domain, everybody, count);
  if (stale.needs || stale.turns) reckon_handoff(domain);
  if (stale.needs || stale.waiting) {
    domain.waiting_sets = for_each_set(domain, who_waits, count);
    note_least_waiting(domain);
  }
  stale = {false, false, false};
  domain.turn = domain.rules.policy->length(domain.rules.turns, domain.handoff, domain.waiting_sets);
  for (Gpu* gpu : domain.gpus) gpu->turn = domain.turn;
}

void Core::note_least_waiting(const Domain& domain) {
  for (Gpu* gpu : domain.gpus) {
    gpu->least_waiting = Bytes{~0ull};
    for (const Session* session : gpu->sessions)
      if (session->tenant->reckoned.waits) gpu->least_waiting = std::min(gpu->least_waiting, session->adds());
  }
}

// A handoff to a running set takes about as long as the longest of its members'.
void Core::reckon_handoff(Domain& domain) {
  Mean seen;
  Mean expected;
  for_each_set(domain, who_takes_turns, [&](const std::vector<Tenant*>& set) {
    Nanoseconds longest{};
    Nanoseconds longest_seen{};
    for (const Tenant* tenant : set) {
      longest_seen = std::max(longest_seen, tenant->reckoned.turns.seen);
      longest = std::max(longest, tenant->reckoned.turns.expected);
    }
    expected.add(longest);
    if (longest_seen > Nanoseconds{}) seen.add(longest_seen);
  });
  domain.handoff = expected.value();
  if (seen.count == 0) return;
  for (Gpu* gpu : domain.gpus) gpu->handoff = seen.value();
}

Nanoseconds Core::credit(const Tenant& tenant) const {
  if (tenant.credit_kept == now_) return tenant.credit;
  return tenant.rules.policy->credit_after(tenant.credit, tenant.standing, now_ - tenant.credit_kept);
}

// Brings it up to now, before what it follows from changes.
void Core::keep_credit(Tenant& tenant) const {
  tenant.credit = credit(tenant);
  tenant.credit_kept = now_;
}

// And keeps it within the policy's bounds.
void Core::add_credit(Tenant& tenant, Nanoseconds more) const {
  keep_credit(tenant);
  tenant.credit = tenant.rules.policy->credit_after(tenant.credit + more, tenant.standing, {});
}

// Or a limit would not bind a job of many short processes.
void Core::keep_account(const Tenant& tenant) {
  std::erase_if(state_.accounts,
                [this](const auto& entry) { return now_ - entry.second.at > kAccountIsKept; });
  const Nanoseconds owed = credit(tenant);
  if (owed >= Nanoseconds{}) return;
  state_.accounts[tenant.id] = {.policy = tenant.rules.policy->name(),
                                .credit = owed,
                                .at = now_,
                                .pauses = {.pauses = true, .due = tenant.due, .limit = tenant.claims.limit}};
}

void Core::take_account(Tenant& tenant, const Policy& policy) {
  const auto its = state_.accounts.find(tenant.id);
  if (its == state_.accounts.end() || its->second.policy != policy.name()) return;
  const Account& account = its->second;
  tenant.credit = policy.credit_after(account.credit, account.pauses, now_ - account.at);
  tenant.due = account.pauses.due;
  state_.accounts.erase(its);
}

Tenant::Stake Core::stake_of(const Tenant& tenant) const {
  const bool enters = tenant.phase == Phase::entering;
  const bool in_turn = tenant.phase == Phase::running || tenant.phase == Phase::leaving;
  const bool holds = in_turn && leases_.holds(tenant.id);
  return {
      .enters = enters, .holds = holds, .competes = enters || holds || (tenant.wants() && !absent(tenant))};
}

// For how long it waits. One that comes in without having asked, since it is in nobody's way, does not.
Nanoseconds Core::waited(const Tenant& tenant) const {
  return tenant.wants() ? now_ - tenant.waiting_since : Nanoseconds{};
}

// What part of the time is due to each tenant: of all of its domain, and on each GPU among those that are
// there, since others take nothing from it. Who does not compete keeps the latter.
std::vector<Core::Due> Core::shares(const Domain& domain) const {
  std::vector<Due> all;
  for (const Tenant* tenant : domain.tenants)
    all.push_back({.share = 0, .due = tenant->stake.competes ? 1 : tenant->due});
  const auto share_out = [&](auto is_meant, auto take) {
    std::vector<Claims> competing;
    std::vector<Due*> theirs;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Tenant& tenant = *domain.tenants[i];
      if (!tenant.stake.competes || !is_meant(tenant)) continue;
      competing.push_back(tenant.claims);
      theirs.push_back(&all[i]);
    }
    const std::vector<double> parts = domain.rules.policy->shares(competing);
    for (std::size_t i = 0; i < parts.size(); ++i) take(*theirs[i], parts[i]);
  };
  const bool alone = domain.gpus.size() == 1;
  share_out([](const Tenant&) { return true; },
            [&](Due& its, double part) {
              its.share = part;
              if (alone) its.due = part;
            });
  if (alone) return all;
  for (const Gpu* gpu : domain.gpus)
    share_out([gpu](const Tenant& tenant) { return is_on(tenant, *gpu); },
              [](Due& its, double part) { its.due = std::min(its.due, part); });
  return all;
}

void Core::note_what_is_due_to_holders(const Domain& domain) {
  for (Gpu* gpu : domain.gpus) {
    gpu->due_to_holders = 0;
    for (const Tenant* tenant : domain.tenants)
      if (tenant->stake.holds && is_on(*tenant, *gpu)) gpu->due_to_holders += tenant->due;
  }
}

// A tenant's standing, where all have `common`.
Standing Core::standing_of(const Tenant& tenant, const Standing& common) {
  const bool contended = common.share > 0;
  Standing standing = common;
  standing.pauses = tenant.phase == Phase::out && !tenant.wants();
  standing.comes_in = contended && tenant.phase == Phase::entering;
  standing.pays = contended && tenant.stake.holds;
  standing.overuses = standing.pays && tenant.phase == Phase::leaving;
  standing.due = tenant.stake.competes || standing.pauses ? tenant.due : 0;
  standing.share = common.share * tenant.share;
  standing.holds = tenant.stake.holds;
  standing.limit = tenant.claims.limit;
  if (!standing.holds) return standing;
  standing.due_to_holders = 1;
  for (const Session* session : tenant.sessions)
    if (on_gpu(session))
      standing.due_to_holders = std::min(standing.due_to_holders, session->gpu->due_to_holders);
  return standing;
}

// What the credit follows from until it changes.
void Core::note_standing(Domain& domain, bool contended, bool crowded) const {
  for (Tenant* tenant : domain.tenants) {
    const Tenant::Stake before = std::exchange(tenant->stake, stake_of(*tenant));
    domain.stakes.count(tenant->stake, 1);
    domain.stakes.count(before, -1);
    if (tenant->stake.competes != before.competes) domain.shared = false;
  }
  const bool shared = std::exchange(domain.shared, true);
  if (!shared) {
    const std::vector<Due> due = shares(domain);
    for (std::size_t i = 0; i < due.size(); ++i) {
      domain.tenants[i]->share = due[i].share;
      domain.tenants[i]->due = due[i].due;
    }
  }
  note_what_is_due_to_holders(domain);
  const Standing common{.sets = domain.sets,
                        .turn = domain.turn.length,
                        .holders = domain.stakes.entering + domain.stakes.leases,
                        .share = contended ? 1.0 : 0.0,
                        .counted = crowded || domain.timed,
                        .leases = domain.stakes.leases};
  for (Tenant* tenant : domain.tenants) {
    const Standing standing = standing_of(*tenant, common);
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
         std::any_of(tenant.sessions.begin(), tenant.sessions.end(),
                     [this](const Session* session) { return on_gpu(session) && said_host_short(*session); });
}

bool Core::said_host_short(const Session& session) const {
  return session.host_short != Nanoseconds{} && now_ - session.host_short < kHomeNews;
}

// Wakes the arbiter when the turn is over, or may be interrupted, and somebody waits; and when one that runs
// has had all it may have.
void Core::watch_turn(const Domain& domain) {
  for (const Tenant* tenant : domain.tenants) {
    if (tenant->phase != Phase::running) continue;
    const Nanoseconds allowed = domain.rules.policy->allowed_for(view(*tenant), view(domain, {}));
    if (allowed < kLongestNap) wake_at(now_ + std::max<Nanoseconds>(allowed, kLeastNap));
  }
  const Turn turn = turn_of(domain);
  const bool any_starved = std::any_of(domain.tenants.begin(), domain.tenants.end(),
                                       [this](const Tenant* tenant) { return starved(*tenant); });
  const bool waited_for = others_wait(domain);
  tell_turn_ends(domain, turn.begun && waited_for ? now_ + turn.left : Nanoseconds{});
  if (!turn.begun || (!any_starved && !waited_for)) return;
  wake_at(now_ + turn.left);
  for (const Tenant* tenant : domain.tenants)
    if (tenant->phase == Phase::running)
      wake_at(now_ + std::min<Nanoseconds>(domain.rules.policy->peace_left(view(*tenant), view(domain, turn)),
                                           kLongestNap));
}

// A tenant of several processes or GPUs is told of no end: one of them cannot know whether the others' work
// still fits. Nor is one whose time is not ruled, since its overuse is not held against it.
bool Core::gives_turns_back(const Tenant& tenant) { return tenant.timed && tenant.sessions.size() == 1; }

void Core::tell_turn_ends(const Domain& domain, Nanoseconds at) {
  for (Tenant* tenant : domain.tenants) {
    const bool knows = tenant->phase == Phase::running && gives_turns_back(*tenant);
    const Nanoseconds its = knows ? at : Nanoseconds{};
    for (Session* session : tenant->sessions) {
      // It is reckoned anew at each event, and rounded each time.
      const bool same = (its == Nanoseconds{}) == (session->turn_ends == Nanoseconds{}) &&
                        std::chrono::abs(its - session->turn_ends) < kEndNews;
      if (!on_gpu(session) || same) continue;
      session->turn_ends = its;
      actions_.emplace_back(SetTurnEnds{.session = session->id, .at = its});
    }
  }
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
        return !on_gpu(session) ||
               was_long(now_ - tenant.left, session->gpu->turn.handoff, tuning_.idle_release);
      });
  tenant.long_pauses = proved_long ? std::min(tenant.long_pauses + 1, kMostLongPauses) : 0;
}

}  // namespace sharedgpu
