// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "arbiter/core/scheduler/line.h"
#include "arbiter/core/scheduler/throttle.h"
#include "arbiter/core/scheduler/turn_end.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::seconds kHostShortNews{3};
constexpr std::chrono::microseconds kLeastNap{1};
constexpr std::chrono::hours kLongestNap{24};

}  // namespace

Scheduler::Scheduler(const Tuning& tuning, const Model& model, const Presence& presence,
                     const MemoryBooks& memory, const TurnMachine& turns, const Gangs& gangs,
                     Effects& effects)
    : tuning_(tuning),
      model_(model),
      presence_(presence),
      memory_(memory),
      turns_(turns),
      gangs_(gangs),
      effects_(effects),
      estimates_(tuning, presence, memory, turns, lengths_, effects),
      limits_(turns, effects),
      accounts_(presence, turns, limits_, effects) {}

void Scheduler::add(const Tenant& tenant) {
  tenants_.begin(tenant);
  estimates_.add(tenant);
  limits_.add(tenant);
  selection_.add(tenant);
  accounts_.add(tenant, *model_.rules_of(tenant).policy);
}

void Scheduler::add(const Session& session) {
  host_short_.begin(session);
  estimates_.add(session);
  selection_.add(session);
}

void Scheduler::add(const Gpu& gpu) {
  lengths_.add(gpu, model_.rules_of(gpu.uuid));
  limits_.add(gpu);
  recalled_last_.begin(gpu);
  accounts_.add(gpu);
  selection_.add(gpu);
}

void Scheduler::on_domains() {
  for (const auto& [id, tenant] : model_.tenants())
    if (accounts_.set_policy(tenant, *model_.rules_of(tenant).policy)) limits_.reset(tenant);
  for (const Domain& domain : model_.domains()) {
    lengths_.begin(domain);
    limits_.begin(domain);
    Facts& facts = facts_.begin(domain);
    for (const Tenant* tenant : domain.tenants) facts.exclusive = facts.exclusive || tenant->exclusive;
  }
}

void Scheduler::restate(const Tenant& tenant, const Claims& stated) {
  limits_.restate(tenant, stated, *model_.rules_of(tenant).policy);
}

// ---- events ----

void Scheduler::on_want(const Session& session, bool first, bool host_short) {
  if (first) on_waiting(*session.tenant);
  estimates_.on_want(*session.tenant, first);
  if (host_short) host_short_[session] = effects_.now();
}

void Scheduler::on_yield(const Session& session) {
  Row& its = tenants_[*session.tenant];
  its.yielded_until = turns_.page(session).turn_ends;
  its.yields = its.yielded_until != Nanoseconds{};
}

void Scheduler::forget_yields(const Domain& domain) {
  for (const Tenant* tenant : domain.tenants) tenants_[*tenant].yields = false;
}

void Scheduler::on_drained(const Session& session, Nanoseconds submission, bool wants) {
  estimates_.on_submission(session, submission);
  if (wants) estimates_.on_want(*session.tenant, false);
}

void Scheduler::apply_deadlines(const Domain& domain, const Tenant& reporter, const DeadlinesSeen& seen) {
  if (limits_.apply(domain, reporter, seen)) facts_[domain].shares_changed = true;
}

void Scheduler::lift_limits(const Domain& domain) {
  if (limits_.lift(domain)) facts_[domain].shares_changed = true;
}

void Scheduler::before_leave(const Tenant& tenant) {
  end_recall(tenant);
  estimates_.on_leave(tenant);
  Row& its = tenants_[tenant];
  its.preempted = false;
  its.elapsed = {};
}

void Scheduler::after_leave(const Move::Leave& leave) {
  estimates_.forget_idleness(*leave.tenant);
  estimates_.set_released_idle(*leave.tenant, leave.for_idleness);
  if (!leave.preempted_after) return;
  tenants_[*leave.tenant].preempted = true;
  tenants_[*leave.tenant].elapsed = *leave.preempted_after;
}

TurnMachine::Entry Scheduler::on_enter(const Move& move) {
  if (move.preempts) accounts_.charge(*move.enter, move.price);
  Row& its = tenants_[*move.enter];
  its.waited = waited(*move.enter);
  its.displaced = false;
  estimates_.set_released_idle(*move.enter, false);
  return {.leads = move.leads, .preempts = move.preempts, .elapsed = its.elapsed};
}

// Records a recall. Forgets recalls that ended so long ago that they delay no other recall (must_recall()).
void Scheduler::after_enter(const Domain& domain, const Move& move) {
  if (!move.for_host) return;
  std::erase_if(recalls_, [this](const auto& entry) {
    const auto& [began, ended] = entry.second;
    return ended && effects_.now() - *ended >= std::max(tuning_.home_pause, *ended - began);
  });
  recalls_[move.enter->id] = {.began = effects_.now(), .ended = {}};
  for (const Gpu* gpu : domain.gpus) recalled_last_[*gpu] = move.enter->id;
}

void Scheduler::end_recall(const Tenant& tenant) {
  const auto its = recalls_.find(tenant.id);
  if (its != recalls_.end() && !its->second.ended) its->second.ended = effects_.now();
}

void Scheduler::on_open(const Domain& domain, const Tenant& tenant, std::optional<Nanoseconds> handoff,
                        const Residencies& at) {
  Row& its = tenants_[tenant];
  its.preempted = false;
  its.elapsed = {};
  estimates_.on_open(tenant);
  for (const Session* session : tenant.sessions) host_short_[*session].reset();
  if (!handoff) return;
  estimates_.on_handoff(tenant, *handoff);
  set_turn_length(domain, at);
}

// ---- advancing a domain ----

std::vector<TurnDemand> Scheduler::turn_demands(const Domain& domain) const {
  std::vector<TurnDemand> demands;
  demands.reserve(domain.tenants.size());
  for (const Tenant* tenant : domain.tenants) {
    const bool revoked = turns_.revoked(*tenant);
    const bool waiting = waits(*tenant) && !revoked;
    demands.push_back({.waits = waiting,
                       .takes_turns = waiting || (turns_.phase_of(*tenant) != Phase::out && !revoked),
                       .measured = estimates_.handoff(*tenant),
                       .expected = estimates_.expected_handoff(*tenant)});
  }
  return demands;
}

void Scheduler::set_turn_length(const Domain& domain, const Residencies& at) {
  selection_.begin(domain, memory_, at);
  lengths_.update(domain, turn_demands(domain), selection_, memory_);
}

// Also counts evicted tenants that do not wait, since they may ask for the GPU at any time.
bool Scheduler::oversubscribed(const Domain& domain, const Residencies& at) {
  const auto limited = [this](const Tenant* tenant) {
    return tenant->exclusive && limits_.claims(*tenant).limit < 1;
  };
  if (std::any_of(domain.tenants.begin(), domain.tenants.end(), limited)) return true;
  if (domain.tenants.size() <= 1) return false;
  selection_.begin(domain, memory_, at);
  return !selection_.everybody_fits();
}

void Scheduler::update_accounts(const Domain& domain, bool contended, bool oversubscribed) {
  Facts& facts = facts_[domain];
  accounts_.update(domain, {.sets = lengths_.sets(domain),
                            .turn = lengths_.of(domain).length,
                            .contended = contended,
                            .counted = oversubscribed || facts.exclusive,
                            .shares_changed = std::exchange(facts.shares_changed, false)});
}

Nanoseconds Scheduler::watch_turn(const Domain& domain, bool seen_over, const Residencies& at) {
  const PolicyRules& rules = domain.rules.policy->rules();
  const auto runs = [this](const Tenant* tenant) { return turns_.phase_of(*tenant) == Phase::running; };
  for (const Tenant* tenant : domain.tenants) {
    if (!runs(tenant)) continue;
    const Nanoseconds budget = budget_left(rules, view(*tenant), view(domain));
    if (budget < kLongestNap) effects_.wake_at(effects_.now() + std::max<Nanoseconds>(budget, kLeastNap));
  }
  const bool needs_growth =
      std::any_of(domain.tenants.begin(), domain.tenants.end(),
                  [&](const Tenant* tenant) { return memory_.needs_growth_to_drain(*tenant, at); });
  const bool waited_for = others_wait(domain);
  const Turn turn = turn_of(domain);
  if (!seen_over && turn.over()) effects_.advance_again();
  const Nanoseconds end = turn.state.begun && waited_for ? effects_.now() + turn.left : Nanoseconds{};
  if (!turn.state.begun || (!needs_growth && !waited_for)) return end;
  effects_.wake_at(effects_.now() + turn.left);
  for (const Tenant* tenant : domain.tenants) effects_.wake_at(recall_over(*tenant));
  if (rules.preemption == Preemption::never) return end;
  const TurnView turn_view = view(domain);
  for (const Tenant* tenant : domain.tenants) {
    Nanoseconds unchanged = Nanoseconds::max();
    if (runs(tenant))
      unchanged = protected_for(rules.preemption, view(*tenant), turn_view.turn.handoff);
    else if (waits(*tenant))
      unchanged = domain.rules.policy->unchanged_for(view(*tenant), turn_view);
    effects_.wake_at(effects_.now() + std::min<Nanoseconds>(unchanged, kLongestNap));
  }
  return end;
}

// ---- read only ----

bool Scheduler::waits(const Tenant& tenant) const {
  return turns_.phase_of(tenant) == Phase::out && wants(tenant) && !presence_.absent(tenant) &&
         gangs_.possible(tenant);
}

bool Scheduler::wants(const Tenant& tenant) const { return turns_.wants(tenant) || gangs_.wanted(tenant); }

bool Scheduler::others_wait(const Domain& domain) const {
  return std::any_of(domain.tenants.begin(), domain.tenants.end(),
                     [this](const Tenant* tenant) { return waits(*tenant); });
}

std::vector<const Tenant*> Scheduler::waiting(const Domain& domain) const {
  const TurnView turn = view(domain, turn_of(domain).over());
  std::vector<InLine> line;
  for (const Tenant* tenant : domain.tenants) {
    if (!waits(*tenant)) continue;
    const TenantView its = view(*tenant);
    line.push_back({tenant, gangs_.must_enter(*tenant), must_recall(*tenant),
                    domain.rules.policy->rank(its, turn), its.waited, tenant->id});
  }
  seat_gangs(line, gangs_);
  std::sort(line.begin(), line.end(), [](const InLine& one, const InLine& other) { return other < one; });
  std::vector<const Tenant*> tenants;
  for (const InLine& place : line) tenants.push_back(place.tenant);
  return tenants;
}

Nanoseconds Scheduler::waiting_since(const Tenant& tenant) const {
  return std::max(tenants_[tenant].waiting_since, turns_.last_ran(tenant));
}

// Zero for a tenant that has not asked for the GPU, and enters because it disturbs no other tenant.
Nanoseconds Scheduler::waited(const Tenant& tenant) const {
  return wants(tenant) ? effects_.now() - waiting_since(tenant) : Nanoseconds{};
}

bool Scheduler::exhausted(const Domain& domain, const Tenant& tenant) const {
  return turns_.phase_of(tenant) == Phase::running &&
         budget_left(domain.rules.policy->rules(), view(tenant), view(domain)) <= Nanoseconds{};
}

TenantView Scheduler::view(const Tenant& tenant) const {
  const auto* running = std::get_if<Running>(&turns_.phase(tenant));
  const Row& its = tenants_[tenant];
  const bool grows = running != nullptr && std::any_of(tenant.sessions.begin(), tenant.sessions.end(),
                                                       [this](const Session* session) {
                                                         return memory_.of(*session).lacks_room();
                                                       });
  return {.tenant = tenant.id,
          .claims = limits_.claims(tenant),
          .lag = accounts_.lag(tenant),
          .waited = turns_.phase_of(tenant) == Phase::out ? waited(tenant) : its.waited,
          .preempted = its.preempted,
          .burst = estimates_.burst(tenant),
          .handoff = estimates_.expected_handoff(tenant),
          .due = accounts_.activity(tenant).due,
          .elapsed = running != nullptr ? effects_.now() - running->opened : Nanoseconds{},
          .submission = estimates_.submission(tenant),
          .last_drain = turns_.last_drain(tenant),
          .leads = turns_.leads(tenant),
          .grows = grows,
          .idle = estimates_.idle_enough(tenant) && gangs_.idle(tenant)};
}

Scheduler::Turn Scheduler::turn_of(const Domain& domain) const {
  Turn turn{.state = turns_.turn_of(domain)};
  if (turn.state.begun)
    turn.left = turn_left(domain.rules.policy->rules(), view(*turn.state.leader),
                          effects_.now() - turn.state.began, view(domain));
  return turn;
}

// A displaced tenant may have memory that it got after it entered. If another tenant entered before the
// displaced tenant has left, such tenants could displace each other forever. So other tenants wait up to
// twice MaxOveruse longer for a displaced tenant: once for its drain, and once for the memory that it may
// need to drain.
bool Scheduler::is_leaving_soon(const Tenant& tenant) const {
  if (turns_.phase_of(tenant) != Phase::leaving || turns_.revoked(tenant)) return false;
  Nanoseconds most = tuning_.patience;
  if (displaced(tenant) && tuning_.overuse) most += 2 * tuning_.overuse->most;
  return effects_.now() - turns_.gates_closed(tenant) < most;
}

bool Scheduler::may_leave_yet(const Tenant& tenant) const {
  const bool leaves = turns_.phase_of(tenant) == Phase::leaving &&
                      (turns_.leases().holds(tenant.id) || turns_.revoked(tenant));
  if (!leaves || !tuning_.overuse) return false;
  const Nanoseconds due = turns_.gates_closed(tenant) + tuning_.overuse->most;
  effects_.wake_at(due);
  return effects_.now() < due;
}

const Scheduler::Recall* Scheduler::last_recall(TenantId tenant) const {
  const auto found = recalls_.find(tenant);
  return found == recalls_.end() ? nullptr : &found->second;
}

bool Scheduler::recalled(const Tenant& tenant) const {
  const Recall* its = last_recall(tenant.id);
  return its != nullptr && !its->ended;
}

Nanoseconds Scheduler::recall_over(const Tenant& tenant) const {
  const auto* running = std::get_if<Running>(&turns_.phase(tenant));
  return running != nullptr && recalled(tenant) ? running->opened + tuning_.home_pause : Nanoseconds::max();
}

bool Scheduler::yields(const Tenant& tenant) const {
  return tenants_[tenant].yields || effects_.now() >= recall_over(tenant);
}

// A recall does not wait for the end of the turn, since the host memory is needed at once. A tenant that is
// short of host memory reports this every second. The report may be false, or the tenant may have caused the
// shortage itself. So a tenant is recalled again only after a pause, even if it has new processes. After each
// recall, no tenant of the domain is recalled for as long as that recall took.
bool Scheduler::must_recall(const Tenant& tenant) const {
  const auto is_short = [this](const Session* session) {
    const auto& said = host_short_[*session];
    return attached(session) && said && effects_.now() - *said < kHostShortNews;
  };
  const auto& sessions = tenant.sessions;
  if (turns_.phase_of(tenant) != Phase::out || std::none_of(sessions.begin(), sessions.end(), is_short))
    return false;
  if (const Recall* its = last_recall(tenant.id);
      its != nullptr && its->ended && effects_.now() - *its->ended < tuning_.home_pause)
    return false;
  return std::none_of(sessions.begin(), sessions.end(), [this](const Session* session) {
    const Recall* last = attached(session) ? last_recall(recalled_last_[*session->gpu]) : nullptr;
    if (last == nullptr) return false;
    return !last->ended || effects_.now() - *last->ended < *last->ended - last->began;
  });
}

}  // namespace sharedgpu
