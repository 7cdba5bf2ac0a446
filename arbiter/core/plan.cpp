// SPDX-License-Identifier: Apache-2.0
// Who runs: the running set of each domain, as what is possible and the policy have it.
#include <algorithm>
#include <utility>

#include "arbiter/core/actions.h"

namespace sharedgpu {
namespace {

constexpr int kMostPatience = 6;

bool complete(const Tenant& tenant) {
  return std::all_of(tenant.sessions.begin(), tenant.sessions.end(), [](const Session* session) {
    return !on_gpu(session) || (!session->evicting && session->use.resident >= session->use.swappable);
  });
}

// It has nothing to do with its lease, or nothing that would end in time.
bool lets_go(const TenantView& view, const Tenant& tenant) { return view.idle || tenant.gives_back; }

// And would not, if all ran.
bool is_in_nobodys_way(const Tenant& tenant) {
  return std::all_of(tenant.sessions.begin(), tenant.sessions.end(), [](const Session* session) {
    return demand_of(*session) == Bytes{} && (!on_gpu(session) || session->gpu->has_time_for_all);
  });
}

// What a tenant asks of all in its domain.
void obey_deadlines_of(const Tenant& tenant, Rules& rules) {
  if (rules.by_threads) return;
  rules.all_timed = rules.all_timed || rules.policy->rules_time_of_all(tenant.stated);
  const Nanoseconds queue = rules.policy->queue_beside(tenant.stated);
  if (queue != Nanoseconds{} && (rules.queue == Nanoseconds{} || queue < rules.queue)) rules.queue = queue;
}

}  // namespace

void Core::find_domains() {
  std::map<Gpu*, std::size_t> of_gpu;
  std::vector<Domain> all;
  for (auto& [uuid, gpu] : state_.gpus) {
    of_gpu[&gpu] = all.size();
    all.emplace_back().gpus = {&gpu};
  }
  auto merge = [&](std::size_t into, std::size_t from) {
    for (Gpu* gpu : all[from].gpus) {
      of_gpu[gpu] = into;
      all[into].gpus.push_back(gpu);
    }
    for (Tenant* tenant : all[from].tenants) all[into].tenants.push_back(tenant);
    all[from] = {};
  };
  for (auto& [id, tenant] : state_.tenants) {
    if (!attached(tenant)) continue;
    std::optional<std::size_t> domain;
    for (const Session* session : tenant.sessions) {
      if (!on_gpu(session)) continue;
      std::size_t its = of_gpu.at(session->gpu);
      if (domain && *domain != its) merge(*domain, its);
      if (!domain) domain = its;
    }
    all[*domain].tenants.push_back(&tenant);
  }
  std::erase_if(all, [](const Domain& domain) { return domain.tenants.empty(); });
  for (auto& [id, tenant] : state_.tenants)
    if (!attached(tenant)) take_rules(tenant, rules_);
  std::size_t place = 0;
  for (Domain& its : all) {
    const auto by_number = [](const Gpu* a, const Gpu* b) { return a->number < b->number; };
    its.rules = (*std::min_element(its.gpus.begin(), its.gpus.end(), by_number))->rules;
    for (const Tenant* tenant : its.tenants) obey_deadlines_of(*tenant, its.rules);
    for (Tenant* tenant : its.tenants) take_rules(*tenant, its.rules);
    note_time(its);
    for (Tenant* tenant : its.tenants) {
      tenant->domain = static_cast<std::size_t>(&its - all.data());
      tenant->place = place++;
      its.stakes.count(tenant->stake, 1);
    }
  }
  domains_ = std::move(all);
  domains_changed_ = false;
}

Core::Turn Core::turn_of(const Domain& domain) const {
  Turn turn;
  bool on_the_way = false;
  const Tenant* leader = nullptr;
  for (const Tenant* tenant : domain.tenants) {
    if (!tenant->in_set()) continue;
    turn.began = std::max(turn.began, tenant->turn_began);
    if (tenant->phase == Phase::running) turn.begun = true;
    if (tenant->leads || leader == nullptr) leader = tenant;
    if (tenant->phase == Phase::entering && tenant->leads) on_the_way = true;
  }
  turn.begun = turn.begun && !on_the_way;
  if (turn.begun)
    turn.left = domain.rules.policy->turn_left(view(*leader), now_ - turn.began, view(domain, turn));
  turn.over = turn.begun && turn.left <= Nanoseconds{};
  return turn;
}

TenantView Core::view(const Tenant& tenant) const {
  const bool running = tenant.phase == Phase::running;
  return {
      .tenant = tenant.id,
      .claims = tenant.claims,
      .credit = credit(tenant),
      .waited = tenant.phase == Phase::out ? waited(tenant) : tenant.waited,
      .interrupted = tenant.interrupted,
      .burst = std::max(tenant.burst, tenant.used + (running ? busy_time(tenant) : Nanoseconds{})),
      .handoff = expected_handoff(tenant),
      .due = tenant.standing.due,
      .had = running ? now_ - tenant.opened : Nanoseconds{},
      .submission = running && gives_turns_back(tenant) ? tenant.sessions.front()->submission : Nanoseconds{},
      .drain = tenant.drain,
      .leads = tenant.leads,
      .grows = running && std::any_of(tenant.sessions.begin(), tenant.sessions.end(), lacks_room),
      .idle = idle_enough(tenant)};
}

void Core::plan(Domain& domain) {
  drop_who_is_absent(domain);
  drop_who_does_not_answer(domain);
  set_turn_length(domain);
  drop_who_may_not_go_on(domain);
  begin_choice(domain);
  for (Tenant* tenant : domain.tenants) choose(*tenant, tenant->in_set());
  if (!fits(domain)) drop_who_no_longer_fits(domain, turn_of(domain));

  RunningSet running = running_set(domain);
  if (!anybody_could_enter(domain, running)) return;
  bool goes_on = false;
  for (Line line = line_of(domain); !line.empty(); line.pop()) {
    Tenant* first = line.top().tenant;
    const bool interruptible = running.interruptible;
    const bool changed = serve(domain, {first, view(*first), line.top().comes_home}, running);
    goes_on = goes_on || running.goes_on;
    if (changed) running = running_set(domain);
    if ((changed || running.interruptible != interruptible) && !anybody_could_enter(domain, running)) break;
  }
  if (goes_on && turn_of(domain).over) give_another_turn(domain);
}

// Most events change nothing about that, and who is next of many takes long to say. Nobody is passed over who
// could enter; it may say so of one who cannot.
bool Core::anybody_could_enter(const Domain& domain, const RunningSet& running) const {
  const TurnView turn = view(domain, running.turn);
  if (turn.over) return true;
  const bool interruptible = running.turn.begun && running.interruptible;
  for (const Seen& member : running.members) {
    if (lets_go(member.view, *member.tenant)) return true;
    if (interruptible && member.tenant->phase == Phase::running &&
        domain.rules.policy->peace_left(member.view, turn) == Nanoseconds{})
      return true;
  }
  for (Tenant* tenant : domain.tenants) {
    if (tenant->phase != Phase::out || absent(*tenant)) continue;
    choose(*tenant, true);
    const bool could = fits(*tenant) || must_come_home(*tenant);
    choose(*tenant, false);
    if (could) return true;
  }
  return false;
}

// Those that wait, who is next first: before all those whose job would be ended for its host memory. A choice
// must have begun.
Core::Line Core::line_of(const Domain& domain) {
  const bool everything_fits = everybody_fits(domain);
  const auto is_in_line = [&](const Tenant& tenant) {
    if (tenant.phase != Phase::out || absent(tenant)) return false;
    const bool costs_nothing =
        !tenant.timed && (is_in_nobodys_way(tenant) || (everything_fits && complete(tenant)));
    return tenant.wants() || costs_nothing;
  };
  std::vector<InLine> line;
  line.reserve(domain.tenants.size());
  const Policy& policy = *domain.rules.policy;
  const TurnView turn = view(domain, {});
  for (Tenant* tenant : domain.tenants) {
    if (!is_in_line(*tenant)) continue;
    const TenantView its = view(*tenant);
    if (const Nanoseconds barred = policy.barred_for(its, turn); barred > Nanoseconds{}) {
      wake_at(now_ + barred);
      continue;
    }
    line.push_back({tenant, must_come_home(*tenant), policy.rank(its, turn), its.waited});
  }
  return Line(std::less<InLine>(), std::move(line));
}

// Its members are chosen.
Core::RunningSet Core::running_set(const Domain& domain) const {
  RunningSet running{.turn = turn_of(domain), .members = {}};
  begin_choice(domain);
  for (Tenant* tenant : domain.tenants) {
    if (!tenant->in_set()) continue;
    choose(*tenant, true);
    running.members.push_back({tenant, view(*tenant)});
  }
  sort_as_they_leave(running.members, domain, running.turn);
  return running;
}

// Who goes first comes first.
void Core::sort_as_they_leave(std::vector<Seen>& members, const Domain& domain, const Turn& turn) {
  std::vector<std::pair<Rank, Seen>> order;
  for (const Seen& member : members)
    order.emplace_back(domain.rules.policy->keeps(member.view, view(domain, turn)), member);
  // Of two that are equal the first one keeps its lease, but has had it for long enough when the turn is
  // over.
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first < b.first;
    return (a.second.tenant->id < b.second.tenant->id) == turn.over && a.second.tenant != b.second.tenant;
  });
  std::transform(order.begin(), order.end(), members.begin(), [](const auto& entry) { return entry.second; });
}

// The running set has outgrown the GPU: the policy says who keeps its place. The first of them stays in any
// case, unless it is it that grows: taking its lease would make no room for anybody. Where a tenant cannot
// leave for want of memory, nobody stays longer than to the end of the turn.
void Core::drop_who_no_longer_fits(Domain& domain, const Turn& turn) {
  std::vector<Seen> members;
  for (Tenant* tenant : domain.tenants)
    if (tenant->chosen) members.push_back({tenant, view(*tenant)});
  sort_as_they_leave(members, domain, turn);
  std::reverse(members.begin(), members.end());
  for (const Seen& member : members) choose(*member.tenant, false);
  bool first = !turn.over || std::none_of(domain.tenants.begin(), domain.tenants.end(),
                                          [this](const Tenant* tenant) { return starved(*tenant); });
  for (const Seen& member : members) {
    Tenant& tenant = *member.tenant;
    choose(tenant, true);
    const bool stays = fits(tenant) || (first && tenant.phase == Phase::running && !member.view.grows);
    choose(tenant, stays);
    first = first && !stays;
    if (stays) continue;
    leave(tenant);
    tenant.outgrown = true;
  }
}

// A session that was told that all may be resident, and neither says Ready nor shows progress, holds up the
// others. Its tenant waits until it is heard of again.
void Core::drop_who_does_not_answer(Domain& domain) {
  if (!others_wait(domain)) return;
  for (Tenant* tenant : domain.tenants) {
    if (tenant->phase != Phase::entering) continue;
    for (const Session* session : tenant->sessions) {
      if (!on_gpu(session) || !session->asked || session->ready || !session->told_all) continue;
      // Progress buys patience, but not without end.
      Nanoseconds patience = patience_for(session->use.swappable);
      Nanoseconds due = std::min(session->news + patience, session->told_all_at + kMostPatience * patience);
      wake_at(due);
      if (now_ < due) continue;
      actions_.emplace_back(Note{.tenant = tenant->id, .text = "does not restore; others go first"});
      for (Session* each : tenant->sessions) each->wants = false;
      leave(*tenant);
      break;
    }
  }
}

// Who has had all that the policy allows, though perhaps nobody else wants the GPU.
void Core::drop_who_may_not_go_on(Domain& domain) {
  for (Tenant* tenant : domain.tenants) {
    if (tenant->phase != Phase::running) continue;
    if (domain.rules.policy->allowed_for(view(*tenant), view(domain, {})) <= Nanoseconds{}) leave(*tenant);
  }
}

// Whether a member of the running set makes room for `waiter` where that needs it: who is idle does, or gives
// its turn back; when the turn is over, unless the policy gives it another; before that, where the policy
// lets it be interrupted, or the waiter comes home, also before those who are just on their way in.
bool Core::may_leave(const Seen& member, const Seen& waiter, const Domain& domain,
                     const RunningSet& running) {
  const TurnView turn = view(domain, running.turn);
  if (lets_go(member.view, *member.tenant)) return true;
  const bool runs = member.tenant->phase == Phase::running;
  if (waiter.comes_home && (turn.over || runs || !member.tenant->comes_home)) return true;
  if (turn.over) return !domain.rules.policy->goes_on(member.view, waiter.view, turn);
  if (!running.interruptible || !running.turn.begun || !runs || !waiter.tenant->wants()) return false;
  return domain.rules.policy->interrupts(waiter.view, member.view, turn);
}

// Lets `waiter` in if it fits beside the running set, or if it does once those have left that may be made to.
// A running set whose footprint hovers about what fits must not put others out again and again: who was put
// out for that waits for its turn, or until it fits beside the largest footprints of this one. Returns
// whether the running set has to be looked at anew.
bool Core::serve(Domain& domain, const Seen& waiting, RunningSet& running) {
  Tenant& waiter = *waiting.tenant;
  const Turn& turn = running.turn;
  choose(waiter, true);
  if (fits(waiter)) {
    const bool empty = running.members.empty();
    // Who gets in when the turn is over begins the next one.
    const bool leads = empty || (turn.over && waiter.wants());
    const bool enters =
        !waiter.outgrown || turn.over || empty || waiting.comes_home || fits_at_peak(domain, waiter);
    if (enters) enter(domain, waiter, leads);
    return true;
  }
  bool room = false;
  bool any = false;
  std::vector<Tenant*> leaving;
  for (const Seen& member : running.members) {
    if (!may_leave(member, waiting, domain, running)) {
      running.goes_on = running.goes_on || turn.over;
      continue;
    }
    any = true;
    choose(*member.tenant, false);
    leaving.push_back(member.tenant);
    room = fits(waiter);
    if (room) break;
  }
  if (!room) {
    for (Tenant* tenant : leaving) choose(*tenant, true);
    choose(waiter, false);
    if (!any && !waiting.comes_home && waiter.wants()) running.interruptible = false;
    return false;
  }
  // Nobody leaves for nothing: whoever fits beside the newcomer after all is taken along.
  for (Tenant* tenant : leaving) {
    choose(*tenant, true);
    choose(*tenant, fits(domain));
  }
  bool alone = true;
  bool interruption = false;
  for (const Seen& member : running.members) {
    Tenant* tenant = member.tenant;
    if (tenant->chosen) {
      alone = false;
      continue;
    }
    const bool interrupted = !turn.over && !lets_go(member.view, *tenant);
    const Nanoseconds had = tenant->phase == Phase::running ? now_ - tenant->turn_began : tenant->had;
    leave(*tenant);
    tenant->idled = member.view.idle && !tenant->wants() && !tenant->stopped();
    if (interrupted) {
      tenant->interrupted = interruption = true;
      tenant->had = had;
    }
  }
  if (interruption) add_credit(waiter, -domain.rules.policy->price_of_interruption(view(domain, turn)));
  enter(domain, waiter, turn.over || alone || interruption);
  waiter.interrupts = interruption;
  waiter.comes_home = waiting.comes_home && interruption;
  return true;
}

// Nobody has come in whom the turn's end was for: the policy lets those that run go on.
void Core::give_another_turn(const Domain& domain) {
  for (Tenant* tenant : domain.tenants) {
    if (!tenant->in_set()) continue;
    tenant->turn_began = now_;
    tenant->waited = {};
    for (Session* session : tenant->sessions) session->peak = session->use.footprint();
  }
}

// Beside the largest footprints that the others had in this turn. Ends the choice under way.
bool Core::fits_at_peak(const Domain& domain, Tenant& newcomer) const {
  begin_choice(domain, Reckoning::at_peak);
  for (Tenant* tenant : domain.tenants) choose(*tenant, tenant->in_set() || tenant == &newcomer);
  return fits(newcomer);
}

}  // namespace sharedgpu
