// SPDX-License-Identifier: Apache-2.0
// The advance of a domain: calls the parts of the core (memory, turns, scheduler) in order, and passes values
// between them.
//
// A tenant leaves the running set for one of these reasons. For all reasons but the last, the code calls
// leave().
//   1. drop_members(), for one of these reasons:
//      - The coordinator of the tenant's gang has ordered the end of the turn (Gangs::must_leave()).
//      - The nodes of the tenant's gang are out of contact (may_leave_unasked()).
//      - All of the tenant's processes are stopped, or Slurm has announced their suspension (must_leave()).
//      - The tenant is entering, and a stopped process keeps it from becoming ready (must_leave()).
//      - Other tenants wait, and the tenant does not restore its memory (is_unresponsive()).
//      - The tenant has used up its limit under the policy (Scheduler::exhausted()).
//   2. Planner::overgrown(): the memory of the running set has outgrown the GPU.
//   3. Planner::may_leave(): another tenant can enter in place of this tenant, and one of these conditions
//      holds. This tenant is idle, yields its turn or is preempted. Or its turn is over. Or the other tenant
//      is recalled. Or the coordinator of the other tenant's gang has ordered the gang to enter.
//   4. core.cpp: a session has reconnected, and its lease does not continue (on(SessionCame),
//      attach_returned()).
//   5. TurnMachine::detach(): the tenant's last session has ended.
//
// To add a reason that holds even if no tenant waits, add a condition to must_leave() or drop_members(). If
// the tenant leaves to make room for others, extend Planner::may_leave(). If the reason ends the turn of the
// whole running set, extend scheduler/turn_end.cpp. If the tenant must also stay out afterwards, exclude it
// in Planner::is_in_line(), Planner::anybody_could_enter(), Scheduler::waits() and Accounts::stake_of(). If
// the core learns of the reason by an event (events.h), tests/fuzz/messages.cpp and
// tests/property/arbiter/world.cpp must send that event, too. If the condition becomes true at a known time,
// pass this time to effects_.wake_at(). Tests: leaving.cpp (a tenant leaves), planner.cpp (the choice of
// tenants that make room, the end of a turn) and turns.cpp (effects on the next turn) of
// tests/unit/arbiter/core. Regenerate tests/property/arbiter/decisions.golden (`decisions --record`).
// Describe the reason in docs/architecture.md, "A turn".
#include <algorithm>

#include "arbiter/core/core.h"

namespace sharedgpu {
namespace {

constexpr int kMostTimeouts = 6;
constexpr std::chrono::milliseconds kSoon{1};

}  // namespace

void Core::find_domains() {
  model_.find_domains();
  scheduler_.on_domains();
}

void Core::advance_all() {
  if (model_.stale()) find_domains();
  const Nanoseconds now = effects_.now();
  Nanoseconds next = recovery_.active() && recovery_.until() > now ? recovery_.until() : Nanoseconds::max();
  for (const Domain& domain : model_.domains()) {
    const bool is_due = domain.due <= now;
    effects_.begin_domain(is_due ? Nanoseconds::max() : domain.due);
    if (is_due) {
      advance(domain);
      model_.set_advanced(domain, now);
    }
    // After advance_again(), the domain is advanced again with the next event, or after kSoon if no event
    // comes.
    const bool again = effects_.again();
    next = std::min({next, effects_.wake(), again ? now + kSoon : effects_.wake()});
    model_.set_due(domain, again ? Nanoseconds{} : effects_.wake());
  }
  next_advance_ = next;
  if (next != Nanoseconds::max()) effects_.put(ArmTimer{.at = next});
}

void Core::advance(const Domain& domain) {
  scheduler_.lift_limits(domain);
  const Residencies& before = turns_.residencies(domain);
  for (const Gpu* gpu : domain.gpus) memory_.notice_stuck(*gpu, before);
  if (!recovery_.active()) {
    for (const Gpu* gpu : domain.gpus) memory_.begin(*gpu, before);
    for (const Tenant* tenant : domain.tenants) turns_.take_lease_of_absent(*tenant);
    gangs_.begin(domain);
    plan(domain);
    const bool seen_over = scheduler_.turn_of(domain).over();
    scheduler_.forget_yields(domain);
    move_memory(domain);
    for (const Tenant* tenant : domain.tenants) {
      turns_.lend_to_returned(*tenant);
      turns_.submit_once(*tenant, overuse_.is_being_ended(*tenant));
    }
    open_ready(domain);
    const bool contended = scheduler_.others_wait(domain);
    for (const Session* session : turns_.set_contended(domain, contended))
      scheduler_.on_contended(*session, contended);
    const Residencies& after = turns_.residencies(domain);
    const bool oversubscribed = scheduler_.oversubscribed(domain, after);
    turns_.set_oversubscribed(domain, oversubscribed, oversubscribed ? domain.rules.queue : Nanoseconds{});
    scheduler_.update_accounts(domain, contended, oversubscribed);
    turns_.set_turn_ends(domain, scheduler_.watch_turn(domain, seen_over, after));
    for (const Gpu* gpu : domain.gpus) memory_.answer_requests(*gpu, after);
    for (const Gpu* gpu : domain.gpus) memory_.note_between_surveys(*gpu);
    overuse_.watch(domain, after);
    for (const Tenant* tenant : domain.tenants)
      if (tenant->job != 0) report_gang(*tenant, after);
  }
  poll_processes(domain);
}

// ---- who runs ----

void Core::plan(const Domain& domain) {
  drop_members(domain);
  Planner planner(scheduler_, presence_, memory_, turns_, gangs_, effects_, domain);
  for (const Tenant* tenant : planner.overgrown(turns_.residencies(domain))) {
    if (gangs_.must_be_asked(*tenant)) {
      gangs_.end(*tenant);
      continue;
    }
    leave(*tenant);
    scheduler_.on_displaced(*tenant);
  }
  planner.begin(turns_.residencies(domain));
  while (const auto move = planner.next(turns_.residencies(domain))) carry_out(domain, *move);
  if (!planner.gives_another_turn()) return;
  turns_.begin_anew(domain);
  for (const Tenant* tenant : domain.tenants)
    if (turns_.in_set(*tenant)) scheduler_.on_another_turn(*tenant);
}

// Takes the tenants that must leave out of the running set.
void Core::drop_members(const Domain& domain) {
  for (const Tenant* tenant : domain.tenants) {
    // The time in which a tenant cannot use the GPU (Presence::absent()) does not count as waiting.
    if (turns_.phase_of(*tenant) == Phase::out && presence_.absent(*tenant)) scheduler_.on_waiting(*tenant);
    if (turns_.in_set(*tenant) && gangs_.must_leave(*tenant)) leave(*tenant);
    if (turns_.in_set(*tenant) && must_leave(*tenant)) leave_or_ask(*tenant);
    if (!turns_.may_leave_unasked(*tenant)) continue;
    if (turns_.in_set(*tenant)) leave(*tenant);
    turns_.finish_leaving(*tenant);  // the tenant may have begun to leave when may_leave_unasked() was still
                                     // false
  }
  if (scheduler_.others_wait(domain))
    for (const Tenant* tenant : domain.tenants) {
      if (turns_.phase_of(*tenant) != Phase::entering || !is_unresponsive(*tenant)) continue;
      effects_.note(*tenant, "does not restore its memory; other tenants go first");
      for (const Session* session : tenant->sessions) turns_.set_wants(*session, false);
      leave_or_ask(*tenant);
    }
  scheduler_.set_turn_length(domain, turns_.residencies(domain));
  for (const Tenant* tenant : domain.tenants)
    if (scheduler_.exhausted(domain, *tenant)) leave_or_ask(*tenant);
}

// Returns true if Slurm has announced the tenant's suspension, if all of its processes are stopped, or if the
// tenant is entering and a stopped process keeps it from becoming ready.
bool Core::must_leave(const Tenant& tenant) {
  const auto is_stopped = [this](const Session* session) {
    return !attached(session) || presence_.frozen(*session);
  };
  const auto never_ready = [this](const Session* session) {
    return presence_.frozen(*session) && !memory_.of(*session).ready;
  };
  const auto& sessions = tenant.sessions;
  if (presence_.suspending(tenant) || std::all_of(sessions.begin(), sessions.end(), is_stopped)) return true;
  return turns_.phase_of(tenant) == Phase::entering &&
         std::any_of(sessions.begin(), sessions.end(), never_ready);
}

// Returns true if the entering tenant delays other tenants: one of its sessions may restore all of its
// memory, but has neither sent Ready nor reported progress before a timeout. The tenant then leaves the
// running set, and does not wait for a turn until one of its sessions asks for the GPU again. Progress and
// new sessions extend the timeout up to a limit.
bool Core::is_unresponsive(const Tenant& tenant) {
  Bytes moving;
  std::vector<const Session*> awaited;
  for (const Session* session : tenant.sessions) {
    const SessionBook& book = memory_.of(*session);
    moving += book.use.swappable;
    if (attached(session) && book.restoring && !book.ready && book.restored_all) awaited.push_back(session);
  }
  const Nanoseconds waited = turns_.await_ready(tenant, !awaited.empty());
  const Nanoseconds left = kMostTimeouts * memory_.timeout_for(moving) - waited;
  return std::any_of(awaited.begin(), awaited.end(), [&](const Session* session) {
    const SessionBook& book = memory_.of(*session);
    const Nanoseconds timeout = memory_.timeout_for(book.use.swappable);
    const Nanoseconds due = std::min(
        {book.last_progress + timeout, *book.all_since + kMostTimeouts * timeout, effects_.now() + left});
    effects_.wake_at(due);
    return effects_.now() >= due;
  });
}

void Core::carry_out(const Domain& domain, const Move& move) {
  for (const Move::Leave& each : move.leave) leave(*each.tenant, each);
  overuse_.note_entry(*move.enter, turns_.residencies(domain));
  gangs_.note_entry(*move.enter);
  turns_.enter(domain, *move.enter, scheduler_.on_enter(move));
  scheduler_.after_enter(domain, move);
}

// ---- which memory moves ----

void Core::move_memory(const Domain& domain) {
  const Residencies& at = turns_.residencies(domain);
  for (const Gpu* gpu : domain.gpus) {
    memory_.expect_evictions(*gpu, at);
    memory_.rebalance(*gpu, at);
    turns_.send_restores(memory_.take_restores(*gpu, at));
    memory_.evict_for_shortage(*gpu, at);
    memory_.evict_before_suspension(*gpu, at);
    memory_.refuse_last(*gpu, at);
  }
}

void Core::open_ready(const Domain& domain) {
  for (const Tenant* tenant : domain.tenants) {
    if (!turns_.may_open(*tenant)) continue;
    const auto handoff = turns_.open(domain, *tenant);
    scheduler_.on_open(domain, *tenant, handoff, turns_.residencies(domain));
  }
}

// ---- jobs that span nodes ----

void Core::report_gang(const Tenant& tenant, const Residencies& at) {
  const Phase phase = turns_.phase_of(tenant);
  if (const auto* running = std::get_if<Running>(&turns_.phase(tenant));
      running != nullptr && tenant.unsettled) {
    const bool grows =
        std::any_of(tenant.sessions.begin(), tenant.sessions.end(),
                    [this](const Session* session) { return memory_.has_grown_lately(*session); });
    const Nanoseconds due = running->opened + tuning_.surge_pause;
    if (!grows && effects_.now() >= due) gangs_.settle(tenant);
    effects_.wake_at(std::max(due, effects_.now() + tuning_.surge_pause));
  }
  const bool cannot_enter = phase == Phase::out && presence_.absent(tenant);
  gangs_.publish(tenant, {.phase = phase,
                          .ends = cannot_enter,
                          .ready = phase == Phase::running || turns_.is_ready(tenant),
                          .drained = turns_.has_drained(tenant),
                          .present = true,
                          .wants = turns_.wants(tenant),
                          .idle = scheduler_.estimates().idle_enough(tenant),
                          .grows = phase == Phase::leaving && memory_.needs_growth_to_drain(tenant, at)});
}

// ---- which processes are stopped ----

void Core::poll_processes(const Domain& domain) {
  std::vector<const Session*> running;
  for (const Tenant* tenant : domain.tenants) {
    presence_.expect_end_of_suspension(*tenant);
    const bool in_turn = turns_.phase_of(*tenant) == Phase::running && !presence_.absent(*tenant);
    running.clear();
    for (const Session* session : tenant->sessions) {
      const bool owes = turns_.owes_answer(*session);
      presence_.poll(*session, owes && !in_turn);
      if (owes && in_turn) running.push_back(session);
    }
    presence_.poll_in_turn(*tenant, running);
  }
}

}  // namespace sharedgpu
