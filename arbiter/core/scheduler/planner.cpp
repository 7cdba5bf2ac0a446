// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/scheduler/planner.h"

#include <algorithm>
#include <utility>

#include "arbiter/core/scheduler/throttle.h"

namespace sharedgpu {
namespace {

// While no tenant runs, no tenant may overtake a tenant that has waited for this long.
constexpr std::chrono::seconds kLongWait{10};

}  // namespace

// Goes through the tenants of the running set, beginning with those that the policy wants to retain. A tenant
// stays if it fits beside the earlier ones that stay. A running tenant stays even if it does not fit, as long
// as no earlier tenant stays, because revoking its lease would make room for no tenant. Such a tenant leaves
// only if it asks for more memory, or if the turn is over and a tenant needs memory to drain.
std::vector<const Tenant*> Planner::overgrown(const Residencies& at) {
  Selection& selection = scheduler_.selection();
  selection.begin(domain_, memory_, at);
  std::vector<Candidate> members;
  for (const Tenant* tenant : domain_.tenants) selection.choose(*tenant, turns_.in_set(*tenant));
  if (selection.fits()) return {};
  for (const Tenant* tenant : domain_.tenants)
    if (selection.chosen(*tenant)) members.push_back({tenant, scheduler_.view(*tenant)});
  const Scheduler::Turn turn = scheduler_.turn_of(domain_);
  sort_as_they_leave(members, turn);
  std::reverse(members.begin(), members.end());
  for (const Candidate& member : members) selection.choose(*member.tenant, false);
  bool first = !turn.over() ||
               std::none_of(domain_.tenants.begin(), domain_.tenants.end(),
                            [&](const Tenant* tenant) { return memory_.needs_growth_to_drain(*tenant, at); });
  std::vector<const Tenant*> leave;
  for (const Candidate& member : members) {
    const Tenant& tenant = *member.tenant;
    selection.choose(tenant, true);
    const bool runs = turns_.phase_of(tenant) == Phase::running;
    const bool stays = selection.fits(tenant) || (first && runs && !member.view.grows);
    selection.choose(tenant, stays);
    first = first && !stays;
    if (!stays) leave.push_back(&tenant);
  }
  return leave;
}

// Reads the running set again, and selects its members.
void Planner::look(const Residencies& at) {
  Selection& selection = scheduler_.selection();
  running_ = {.turn = scheduler_.turn_of(domain_), .members = {}};
  selection.begin(domain_, memory_, at);
  for (const Tenant* tenant : domain_.tenants) {
    if (!turns_.in_set(*tenant)) continue;
    selection.choose(*tenant, true);
    running_.members.push_back({tenant, scheduler_.view(*tenant)});
  }
  const auto runs = [this](const Candidate& its) { return turns_.phase_of(*its.tenant) == Phase::running; };
  const bool forms = std::none_of(running_.members.begin(), running_.members.end(), runs);
  const bool may_grow =
      forms && std::any_of(domain_.tenants.begin(), domain_.tenants.end(),
                           [this](const Tenant* tenant) { return scheduler_.is_leaving_soon(*tenant); });
  running_.nobody_passes = may_grow || (forms && !running_.members.empty());
  running_.is_kept_free =
      may_grow && std::any_of(running_.members.begin(), running_.members.end(),
                              [](const Candidate& member) { return member.view.waited >= kLongWait; });
  sort_as_they_leave(running_.members, running_.turn);
}

void Planner::begin(const Residencies& at) {
  look(at);
  if (!anybody_could_enter()) return;
  // A tenant that had to leave for lack of room before its gates opened also counts as waiting.
  for (const Tenant* tenant : domain_.tenants)
    if (turns_.phase_of(*tenant) == Phase::leaving && !turns_.leases().holds(tenant->id))
      let_nobody_pass(scheduler_.waited(*tenant));
  line_up();
}

std::optional<Move> Planner::next(const Residencies& at) {
  if (std::exchange(moved_, false)) {
    look(at);
    if (!anybody_could_enter()) return std::nullopt;
  }
  while (!line_.empty()) {
    const InLine first = line_.top();
    if (running_.is_kept_free && !first.for_host && !first.ordered) break;
    line_.pop();
    if (passed_since_ && !first.for_host && !first.ordered && turns_.last_ran(*first.tenant) > *passed_since_)
      continue;
    const bool preemptible = running_.preemptible;
    Move move;
    const bool changed = serve({first.tenant, scheduler_.view(*first.tenant), first.for_host}, at, move);
    if (move.enter != nullptr) {
      moved_ = true;
      return move;
    }
    // If this node has offered a turn to the gang, the gang waits only for other nodes.
    const bool is_offered = gangs_.is_bound(*first.tenant);
    if (running_.nobody_passes && first.waited >= kLongWait && !is_offered) break;
    if (!is_offered) let_nobody_pass(first.waited);
    if (changed) look(at);
    if ((changed || running_.preemptible != preemptible) && !anybody_could_enter()) break;
  }
  return std::nullopt;
}

// A tenant that has waited for long may fit as soon as leaving tenants have drained. Until then, or until
// their time to leave is over, no tenant that has had a turn during this wait may enter before the waiting
// tenant.
void Planner::let_nobody_pass(Nanoseconds waited) {
  if (waited < kLongWait || passed_since_) return;
  if (std::any_of(domain_.tenants.begin(), domain_.tenants.end(),
                  [this](const Tenant* tenant) { return scheduler_.may_leave_yet(*tenant); }))
    passed_since_ = effects_.now() - waited;
}

// A fast check before the slow ranking of all tenants: returns false only if no tenant can enter, as after
// most events. A wrong true costs only time.
bool Planner::anybody_could_enter() {
  if (running_.turn.over()) return true;
  const bool preemptible = running_.turn.state.begun && running_.preemptible;
  for (const Candidate& member : running_.members) {
    if (gives_up(member)) return true;
    if (preemptible && turns_.phase_of(*member.tenant) == Phase::running &&
        protected_for(policy_.rules().preemption, member.view, turn_view().turn.handoff) == Nanoseconds{})
      return true;
  }
  Selection& selection = scheduler_.selection();
  return std::any_of(domain_.tenants.begin(), domain_.tenants.end(), [&](const Tenant* tenant) {
    if (turns_.phase_of(*tenant) != Phase::out || presence_.absent(*tenant)) return false;
    if (gangs_.must_enter(*tenant)) return true;
    selection.choose(*tenant, true);
    const bool could = selection.fits(*tenant) || scheduler_.must_recall(*tenant);
    selection.choose(*tenant, false);
    return could;
  });
}

bool Planner::is_in_line(const Tenant& tenant, bool everybody_fits) const {
  if (turns_.phase_of(tenant) != Phase::out || presence_.absent(tenant)) return false;
  if (!gangs_.possible(tenant)) return false;
  if (scheduler_.wants(tenant)) return true;
  // A tenant that has not asked for the GPU enters only if the other tenants lose nothing by this.
  return !tenant.exclusive &&
         (scheduler_.selection().disturbs_nobody(tenant) || (everybody_fits && memory_.complete(tenant)));
}

// Sorts the waiting tenants: first gangs that their coordinators have ordered to enter, then tenants that
// must be recalled for their host memory, then all others as the policy ranks them.
void Planner::line_up() {
  const bool everybody_fits = scheduler_.selection().everybody_fits();
  std::vector<InLine> line;
  const TurnView turn = scheduler_.view(domain_);
  for (const Tenant* tenant : domain_.tenants) {
    if (!is_in_line(*tenant, everybody_fits)) continue;
    const TenantView view = scheduler_.view(*tenant);
    const bool ordered = gangs_.must_enter(*tenant);
    if (const Nanoseconds wait = throttled_for(policy_.rules(), view); wait > Nanoseconds{} && !ordered) {
      effects_.wake_at(effects_.now() + wait);
      continue;
    }
    line.push_back({tenant, ordered, scheduler_.must_recall(*tenant), policy_.rank(view, turn), view.waited,
                    tenant->id});
  }
  seat_gangs(line, gangs_);
  line_ = std::priority_queue<InLine>(std::less<InLine>(), std::move(line));
}

// Sorts the members in the order in which they would leave. If the policy ranks two members equally, the
// member with the lower number leaves last during the turn, and first after the turn is over.
void Planner::sort_as_they_leave(std::vector<Candidate>& members, const Scheduler::Turn& turn) const {
  const TurnView view = scheduler_.view(domain_, turn.over());
  std::vector<std::pair<Rank, Candidate>> order;
  for (const Candidate& member : members) order.emplace_back(policy_.retain(member.view, view), member);
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first < b.first;
    return (a.second.tenant->id < b.second.tenant->id) == turn.over() && a.second.tenant != b.second.tenant;
  });
  std::transform(order.begin(), order.end(), members.begin(), [](const auto& entry) { return entry.second; });
}

// Returns true if the member no longer needs its lease: it is idle, or ends its turn early.
bool Planner::gives_up(const Candidate& member) const {
  return member.view.idle || scheduler_.yields(*member.tenant);
}

// A job is apart if its nodes do not reach each other. Returns true if the waiting tenant's job is apart and
// another job that is apart goes first. Jobs that are apart get the GPU one after the other, in the same
// order on all nodes. Each job keeps the GPU until the job ends. If two such jobs took turns, each could have
// its turn on a different node, and wait there for its processes on the other node. A job with processes on
// this node keeps its place in the order even if it does not ask for a turn, since it may have a turn on
// another node.
bool Planner::waits_for_others_apart(const Tenant& waiter) const {
  if (waiter.job == 0 || waiter.gang) return false;
  return std::any_of(domain_.tenants.begin(), domain_.tenants.end(), [&](const Tenant* other) {
    if (other == &waiter || !gangs_.is_apart(*other)) return false;
    return turns_.phase_of(*other) != Phase::out || gangs_.keeps_place(*other) ||
           (gangs_.goes_before(*other, waiter) && !presence_.absent(*other));
  });
}

// Returns true if the waiting tenant fits beside the chosen tenants. A job that is apart never runs beside
// another job on several nodes. If two such jobs ran together and one grew, the other job would have to leave
// here. On another node, the job that grew might wait for the job that left.
bool Planner::fits_beside(const Tenant& waiter) const {
  const Selection& selection = scheduler_.selection();
  if (!selection.fits(waiter)) return false;
  const bool alone = !waiter.gang;
  return waiter.job == 0 ||
         std::none_of(running_.members.begin(), running_.members.end(), [&](const Candidate& member) {
           const Tenant& other = *member.tenant;
           return &other != &waiter && other.job != 0 && (alone || !other.gang) && selection.chosen(other);
         });
}

// Returns true if the member does not leave for the waiting tenant. True only if both belong to jobs on
// several nodes, and the member's job is apart or its nodes have lost contact during its turn.
bool Planner::stays_for(const Tenant& member, const Tenant& waiter) const {
  return member.job != 0 && waiter.job != 0 && (!member.gang || gangs_.keeps_place(member));
}

// Returns true if the member may leave to make room for the waiting tenant. This is the case if the member is
// idle or yields its turn, if the turn is over and the policy does not extend the member's turn, or if the
// policy lets the waiting tenant preempt the member. For a recall, every member may leave unless stays_for()
// is true. If the coordinator of the waiting tenant's gang has ordered the gang to enter, every member may
// leave, with one exception. A member that is entering stays if its gang has waited longer than the waiting
// tenant's gang. But even such a member may leave if a process on another node may be unable to drain
// without the waiting tenant.
bool Planner::may_leave(const Candidate& member, const Candidate& waiter) const {
  if (gangs_.must_enter(*waiter.tenant))
    return !member.tenant->gang || turns_.phase_of(*member.tenant) == Phase::running ||
           gangs_.is_urgent(*waiter.tenant) || gangs_.is_elder(*waiter.tenant, *member.tenant);
  if (stays_for(*member.tenant, *waiter.tenant)) return false;
  if (gives_up(member)) return true;
  const bool over = running_.turn.over();
  const bool runs = turns_.phase_of(*member.tenant) == Phase::running;
  if (waiter.for_host) return true;
  if (over) return !policy_.extends(member.view, waiter.view, turn_view());
  const bool preemptible = running_.preemptible && running_.turn.state.begun;
  if (!preemptible || !runs || !scheduler_.wants(*waiter.tenant)) return false;
  return may_preempt(policy_, waiter.view, member.view, turn_view());
}

// Deselects members that may leave, one after the other, until the waiting tenant fits, and returns true. If
// the waiting tenant would not fit even if all of them left, selects all members again, deselects the waiting
// tenant, and returns false.
bool Planner::make_way(const Candidate& waiter, std::vector<const Candidate*>& leaving) {
  Selection& selection = scheduler_.selection();
  for (const Candidate& member : running_.members) {
    if (!may_leave(member, waiter)) {
      extends_ = extends_ || running_.turn.over();
      continue;
    }
    selection.choose(*member.tenant, false);
    leaving.push_back(&member);
    if (fits_beside(*waiter.tenant)) return true;
  }
  for (const Candidate* member : leaving) selection.choose(*member->tenant, true);
  selection.choose(*waiter.tenant, false);
  return false;
}

// Fills in `move` if the waiting tenant can enter: it fits beside the running set, or members that may leave
// make enough room. If the waiting tenant was displaced because the running set grew, it must fit beside the
// largest footprints of this turn, or wait for the end of the turn. Otherwise a running set that grows and
// shrinks could displace this tenant again and again. Returns true if the selection has changed, so that the
// caller must call look().
bool Planner::serve(const Candidate& waiting, const Residencies& at, Move& move) {
  Selection& selection = scheduler_.selection();
  const Tenant& waiter = *waiting.tenant;
  const bool over = running_.turn.over();
  const bool ordered = gangs_.must_enter(waiter);
  if (waiter.gang && !ordered) {
    offer(waiting);
    return true;
  }
  if (waits_for_others_apart(waiter)) return false;
  selection.choose(waiter, true);
  if (fits_beside(waiter)) {
    const bool empty = running_.members.empty();
    const bool enters = !scheduler_.displaced(waiter) || ordered || over || empty || waiting.for_host ||
                        fits_at_peak(waiter, at);
    if (!enters) return true;
    move.enter = &waiter;
    // A tenant that enters when the turn is over begins the next turn.
    move.leads = empty || (over && scheduler_.wants(waiter));
    return true;
  }
  std::vector<const Candidate*> leaving;
  if (is_held_ && !ordered) {
    selection.choose(waiter, false);
    return false;
  }
  if (!make_way(waiting, leaving)) {
    const bool moves_nobody = leaving.empty() && !waiting.for_host && scheduler_.wants(waiter);
    if (moves_nobody && policy_.rules().preempts_by_rank) running_.preemptible = false;
    return false;
  }
  // Some of the leaving members may fit beside the entering tenant. Selects these members again, so that they
  // stay.
  for (const Candidate* member : leaving) {
    selection.choose(*member->tenant, true);
    selection.choose(*member->tenant, selection.fits() && fits_beside(waiter));
  }
  if (ask_to_leave(waiting, leaving)) return true;
  bool alone = true;
  for (const Candidate& member : running_.members) {
    if (selection.chosen(*member.tenant)) {
      alone = false;
      continue;
    }
    move.leave.push_back(leave_of(member));
    move.preempts = move.preempts || move.leave.back().preempted_after.has_value();
  }
  move.enter = &waiter;
  move.leads = over || alone || move.preempts;
  move.for_host = waiting.for_host;
  if (move.preempts && !ordered)
    move.price = preemption_cost(policy_.rules().preemption, turn_view().turn.handoff);
  return true;
}

// Asks the coordinators of gangs among the leaving members to end their turns, since a gang leaves only by
// its coordinator's order. Until these gangs have left, no other tenant gets the memory that the waiting
// tenant needs. Returns true if at least one coordinator was asked.
bool Planner::ask_to_leave(const Candidate& waiting, const std::vector<const Candidate*>& leaving) {
  bool asked = false;
  for (const Candidate* member : leaving) {
    if (scheduler_.selection().chosen(*member->tenant) || !gangs_.must_be_asked(*member->tenant)) continue;
    gangs_.end(*member->tenant);
    asked = true;
  }
  is_held_ = is_held_ || asked;
  if (asked && waiting.tenant->gang) gangs_before_.push_back(waiting.tenant);
  return asked;
}

// Offers a turn to a gang that could begin a turn here. If several gangs do not fit together, only the eldest
// gets an offer. A younger gang with an earlier offer may have begun its turn, so the elder gang gets an
// offer only after that earlier offer has been withdrawn. All nodes agree which of two gangs has waited
// longer, so no two gangs wait for each other. The running set continues until the gang's turn begins. Until
// then, another tenant may enter only if no member has to leave for it.
void Planner::offer(const Candidate& waiting) {
  Selection& selection = scheduler_.selection();
  const Tenant& gang = *waiting.tenant;
  if (another_job_drains(gang)) return;
  for (const Tenant* before : gangs_before_) selection.choose(*before, true);
  selection.choose(gang, true);
  std::vector<const Candidate*> leaving;
  if (!fits_beside(gang) && !make_way(waiting, leaving)) return;
  gangs_before_.push_back(&gang);
  is_held_ = is_held_ || (!leaving.empty() && is_kept_for_gangs());
  for (const Tenant* other : domain_.tenants)
    if (gangs_.is_bound(*other) && turns_.phase_of(*other) == Phase::out) selection.choose(*other, true);
  if (fits_beside(gang)) gangs_.offer(gang);
}

// Returns true if another job on several nodes is outside the running set, and has not drained here or is in
// a turn during which its nodes have lost contact. After a loss of contact, such a job leaves the running set
// only for tenants that run on this node alone. The job may need its turn on other nodes, or more memory on
// this node, before it can drain.
bool Planner::another_job_drains(const Tenant& gang) const {
  return std::any_of(domain_.tenants.begin(), domain_.tenants.end(), [&](const Tenant* other) {
    return other != &gang && other->job != 0 && !turns_.in_set(*other) &&
           (!turns_.has_drained(*other) || gangs_.keeps_place(*other));
  });
}

// Returns true while the next turn is kept for the gang to which it was offered. The turn is kept for the
// length of a turn, or for kLongWait if that is longer, so that the gang's other nodes can end their turns.
// After that time another tenant gets the turn, and the turn after it is offered to the gang.
bool Planner::is_kept_for_gangs() const {
  const Scheduler::Turn& turn = running_.turn;
  const Nanoseconds end = effects_.now() + turn.left;
  const Nanoseconds kept_until = end + std::max<Nanoseconds>(kLongWait, end - turn.state.began);
  if (effects_.now() >= kept_until) return false;
  if (turn.over()) effects_.wake_at(kept_until);
  return true;
}

Move::Leave Planner::leave_of(const Candidate& member) const {
  const Tenant& tenant = *member.tenant;
  Move::Leave leave{.tenant = &tenant};
  leave.for_idleness = member.view.idle && !turns_.wants(tenant) && !presence_.frozen(tenant);
  if (running_.turn.over() || gives_up(member)) return leave;
  const bool runs = turns_.phase_of(tenant) == Phase::running;
  leave.preempted_after = runs ? effects_.now() - turns_.turn_began(tenant) : scheduler_.elapsed(tenant);
  return leave;
}

// Returns true if the newcomer fits beside the largest footprints that the members had in this turn. Discards
// the present selection.
bool Planner::fits_at_peak(const Tenant& newcomer, const Residencies& at) {
  Selection& selection = scheduler_.selection();
  selection.begin(domain_, memory_, at, Selection::Basis::peak);
  for (const Tenant* tenant : domain_.tenants)
    selection.choose(*tenant, turns_.in_set(*tenant) || tenant == &newcomer);
  return selection.fits(newcomer);
}

}  // namespace sharedgpu
