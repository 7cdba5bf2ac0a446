// SPDX-License-Identifier: Apache-2.0
// The admission of growth: checks whether the GPU and the host can hold the memory, at once or after other
// tenants have made room.
#include <algorithm>
#include <map>
#include <utility>

#include "arbiter/core/memory/memory_books.h"
#include "arbiter/core/model/answers.h"
#include "protocol/host_memory.h"

namespace sharedgpu {
namespace {

// The memory that a session will have after its pin request is granted.
MemoryUse as_granted(MemoryUse use, Bytes pin_request) {
  use.swappable = minus(use.swappable, pin_request);
  use.resident = minus(use.resident, pin_request);
  use.pinned += pin_request;
  return use;
}

}  // namespace

void MemoryBooks::report(const Session& session, const Usage& usage, const Residency& at, bool recovering) {
  SessionBook& its = book(session);
  MemoryUse reported = usage.use;
  const bool asks_for_away = usage.request != 0 && !its.unreported && usage.away > its.away;
  const bool asks = usage.request != 0 && !asks_for_away;
  const Bytes if_others_granted = its.away_if_granted;
  if (asks) its.away_if_granted = usage.away;
  const Bytes pins = std::min({reported.settling, reported.swappable, reported.resident, reported.pinned});
  // Memory that is to be pinned in place counts as swappable until the request is granted.
  if (asks || its.unreported) reported.pinned -= pins;
  reported.settling = {};
  its.reported_swappable = reported.swappable;
  its.reported_pinned = reported.pinned;
  its.job_host_limit = usage.job_host_limit;
  its.reported_away = usage.away;
  its.uncharged = usage.uncharged;
  if (its.unreported)
    its.away = usage.away;
  else if (!asks)
    its.away = std::min(its.away, usage.away);
  // While a session restores, a report counts as progress only if it shows more resident memory. Otherwise a
  // session could delay the turn by reports alone.
  if (at.phase != Phase::entering || reported.resident > its.use.resident) note_progress(session);
  if (std::exchange(its.unreported, false)) take_first_report(session, reported);

  const MemoryUse wanted = as_granted(reported, pins);
  const bool reported_before = asks && std::exchange(its.may_have_reported_growth, false);
  const bool grows =
      reported_before || wanted.swappable > its.use.swappable;  // a decrease is always accepted
  if (asks) its.growth_counted = reported_before || (its.growth_counted && !its.requests.empty());
  const Bytes host_most = grows ? passed_host_limit(session, holding(session, wanted)) : Bytes{};
  // During the recovery, other sessions may not have reported their memory. So end_recovery() decides on the
  // request.
  const bool judged = asks && !recovering;
  Fit fits = !judged ? Fit::yes : host_most != Bytes{} ? Fit::never : fit(session, wanted, at);
  // A request to pin memory is refused rather than deferred, since the end of a turn may wait for the answer.
  if (fits == Fit::later && pins != Bytes{}) fits = Fit::never;
  if (fits == Fit::never) {
    its.away_if_granted = if_others_granted;
    refuse(session, usage.request, host_most);
  } else if (asks && its.requests.size() + its.deferred.size() >= kMostRequests) {
    effects_.drop(session, "too many requests at once");
  } else if (fits == Fit::later || (judged && grows && waits_for_host(session, holding(session, wanted)))) {
    reported.swappable = std::min(reported.swappable, its.use.swappable);
    if (fits == Fit::later) reported.pinned = std::min(reported.pinned, its.use.pinned);
    take_use(session, reported, true, at);
    if (its.deferred.empty()) its.deferred_at = effects_.now();
    its.deferred.push_back(usage.request);
  } else {
    take_use(session, reported, asks, at);
    its.pin_request = asks ? pins : std::min(its.pin_request, pins);
    if (asks) begin_request(session, usage.request);
  }
  // A session does not send Ready while it waits for an answer to a request, even if all of its memory is
  // resident. So take_restores() sends the session another Restore, which makes the session send Ready.
  if (at.phase == Phase::entering && !its.ready && its.restored_all &&
      its.use.resident >= its.use.swappable) {
    its.restored_all = false;
    its.restored_same_twice = true;
  }
  if (at.drained) note_eviction_report(session, usage.stuck != 0);
  if (asks_for_away) ask_for_away(session, usage.request, at, recovering);
}

// Takes the first report of a session that an earlier arbiter admitted. The session already has this memory,
// so it counts as promised even if all promises exceed the memory of the GPU. Further promises stay within
// that memory.
void MemoryBooks::take_first_report(const Session& session, const MemoryUse& reported) {
  SessionBook& its = book(session);
  its.may_have_reported_growth = true;
  its.use = reported;
  its.told_context = reported.context;
  its.use.swappable = std::min(its.use.swappable, session.gpu->total);
  its.use.pinned = std::min(its.use.pinned, session.gpu->total);
  its.resident_limit = its.use.swappable;
  its.pin_limit = its.granted_pins = its.use.pinned;
}

void MemoryBooks::pass_over(const Model& model, Nanoseconds standstill) {
  for (const auto& [id, session] : model.sessions()) {
    SessionBook& its = book(session);
    its.last_progress += standstill;
    its.evicted_at += standstill;
    its.pressed += standstill;
    if (its.all_since) *its.all_since += standstill;
    its.requested_at += standstill;
    its.deferred_at += standstill;
    its.away_requested_at += standstill;
    if (its.crowded_since) *its.crowded_since += standstill;
  }
}

void MemoryBooks::begin_request(const Session& session, std::uint64_t request) {
  SessionBook& its = book(session);
  if (its.requests.empty()) its.requested_at = effects_.now();
  its.requests.push_back(request);
}

void MemoryBooks::refuse(const Session& session, std::uint64_t request, Bytes host_most) {
  effects_.send(
      session,
      Verdict{
          .request = request, .granted = 0, .allowed = of(session).resident_limit, .host_most = host_most});
}

void MemoryBooks::refuse_all(const Session& session, Bytes host_most) {
  SessionBook& its = book(session);
  for (const std::uint64_t request : its.requests) refuse(session, request, host_most);
  its.requests.clear();
  its.pin_request = {};
}

// Decides on growth that was requested during the recovery.
void MemoryBooks::judge_request(const Session& session, const Residency& at) {
  SessionBook& its = book(session);
  its.unjudged = its.unjudged && !its.requests.empty();
  if (!its.unjudged) return;
  const MemoryUse wanted = as_granted(its.use, its.pin_request);
  const Bytes host_most = passed_host_limit(session, holding(session, wanted));
  const Fit fits = host_most == Bytes{} ? fit(session, wanted, at) : Fit::never;
  its.unjudged = fits == Fit::later;
  if (its.unjudged) effects_.wake_at(crowded_until(session, at));
  if (fits == Fit::never) refuse_all(session, host_most);
}

// Admits deferred growth when there is enough memory, or refuses it after a timeout.
void MemoryBooks::admit_deferred(const Gpu& gpu, const Residencies& at) {
  for (const Session* session : gpu.sessions) {
    judge_request(*session, at[*session]);
    judge_away(*session, at[*session]);
    SessionBook& its = book(*session);
    if (its.deferred.empty()) continue;
    MemoryUse use = its.use;
    use.swappable = std::max(use.swappable, its.reported_swappable);
    use.pinned = std::max(use.pinned, its.reported_pinned);
    const Nanoseconds due = its.deferred_at + tuning_.host_patience;
    const bool waits = waits_for_host(*session, holding(*session, use));
    if (waits && effects_.now() < due) {
      effects_.wake_at(due);
      continue;
    }
    const Bytes host_most =
        waits ? session->tenant->limits.host : passed_host_limit(*session, holding(*session, use));
    const Fit fits =
        host_most == Bytes{} ? fit(*session, as_granted(use, its.pin_request), at[*session]) : Fit::never;
    if (fits == Fit::later) {
      effects_.wake_at(crowded_until(*session, at[*session]));
      continue;
    }
    const bool granted = fits == Fit::yes;
    if (granted) take_use(*session, use, true, at[*session]);
    for (const std::uint64_t request : std::exchange(its.deferred, {})) {
      if (granted)
        begin_request(*session, request);
      else
        refuse(*session, request, host_most);
    }
  }
}

// If a session is at work, its growth is granted when there is room on the GPU. If the session is not at
// work, its growth is granted at once, since it needs the memory only in its next turn. Growth of pinned
// memory is always granted only when there is room on the GPU. If a job runs on several nodes and may have a
// turn on other nodes, its processes on this node that have never run get no memory before the job enters the
// running set here. This delays no other node, since work there does not depend on a process that has never
// run.
void MemoryBooks::answer_requests(const Gpu& gpu, const Residencies& all) {
  for (const Session* session : gpu.sessions) {
    SessionBook& its = book(*session);
    const Residency& at = all[*session];
    if (its.requests.empty() || its.pin_limit < its.use.pinned || its.pin_request != Bytes{}) continue;
    if (its.unjudged || (at.comes_late && at.phase == Phase::out)) continue;
    if (at.revoked && at.frozen) continue;  // answered when the process resumes, and is at work again
    if ((at.at_work || at.comes_late) && its.resident_limit < its.use.swappable) continue;
    if (is_promised_already(*session, all)) continue;
    // A drained session must not restore memory. If the session is to submit once, the Step message has a
    // higher limit.
    const Bytes limit = at.drained ? std::min(its.resident_limit, its.use.resident) : its.resident_limit;
    for (const std::uint64_t request : its.requests)
      effects_.send(*session, Verdict{.request = request, .granted = 1, .allowed = limit});
    its.requests.clear();
    its.granted_pins = its.use.pinned;
    if (its.deferred.empty()) its.away = std::min(its.away, its.away_if_granted);
    effects_.advance_again();
  }
}

// A session that reconnects reports the sum of its memory and its pending growth, so the growth counts as
// promised before it is granted. The growth is granted when all promises fit on the GPU; until then other
// tenants evict or leave. After a timeout the growth is refused.
bool MemoryBooks::is_promised_already(const Session& session, const Residencies& at) {
  const SessionBook& its = of(session);
  if (!its.growth_counted) return false;
  const bool takes = at[session].at_work || its.use.pinned != Bytes{};
  if (!takes || promised(*session.gpu, at) <= usable_now(*session.gpu)) return false;
  const Nanoseconds due = its.requested_at + timeout_for(its.use.footprint());
  effects_.wake_at(due);
  if (effects_.now() >= due) refuse_all(session);
  return true;
}

// Resolves a deadlock: each session with memory on the GPU asks for more memory before it can leave, or
// cannot evict. The request of the session whose gate closed last is refused. A deadlock can also span two
// nodes: a gang with memory here waits for memory on another node, and another tenant waits for memory here.
// Then only one node is to refuse a request. So this node refuses it only if the refused tenant belongs to a
// gang, and no gang that waits for memory on another node began to wait later than the refused tenant's gang.
void MemoryBooks::refuse_last(const Gpu& gpu, const Residencies& all) {
  const Session* last = nullptr;
  // Among sessions whose job waits for memory on another node, a session of the gang that began to wait last.
  const Session* youngest = nullptr;
  const auto age = [&](const Session& session) {
    return std::pair(all[session].gang_since, session.tenant->job);
  };
  auto needs_growth =
      answers_about<Tenant>([&](const Tenant& tenant) { return needs_growth_to_drain(tenant, all); });
  for (const Session* session : gpu.sessions) {
    const Residency& at = all[*session];
    if (at.drained || at.frozen) continue;
    if (at.peers_grow && !waits_to_grow(*session, at)) {
      if (youngest == nullptr || age(*youngest) < age(*session)) youngest = session;
      continue;
    }
    if (!needs_growth(*session->tenant)) {
      if (promised(*session, at) != Bytes{}) return;  // this session can drain without more memory
      continue;
    }
    if (!waits_to_grow(*session, at) || can_be_filled(*session->tenant, all)) continue;
    const Nanoseconds due = of(*session).requested_at + timeout_for(of(*session).use.footprint());
    effects_.wake_at(due);
    const bool later = last == nullptr || all[*last].gates_closed <= at.gates_closed;
    if (effects_.now() >= due && later) last = session;
  }
  if (last == nullptr || (youngest != nullptr && age(*last) < age(*youngest))) return;
  effects_.note(
      *last->tenant,
      "allocation refused: the tenant needs more memory to finish its turn than other tenants can free");
  refuse_all(*last);
}

void MemoryBooks::end_recovery(const Model& model, const Residencies& at) {
  // A running session may have reported growth that was never granted. If the promises on a GPU exceed the
  // GPU's memory, the limits of the running sessions there are lowered.
  for (const auto& [uuid, gpu] : model.gpus()) {
    if (promised(gpu, at) <= usable(gpu)) continue;
    for (const Session* session : gpu.sessions)
      if (at[*session].phase == Phase::running) hold_at_resident(*session);
  }
  for (const auto& [uuid, gpu] : model.gpus()) expect_survey(gpu);
  for (const auto& [id, session] : model.sessions()) {
    book(session).away_unjudged = false;
    if (attached(&session)) judge_away(session, at[session]);
    if (of(session).requests.empty()) continue;
    book(session).unjudged = true;
    judge_request(session, at[session]);
  }
}

// Growth waits for a while if it lacks room only because of unmanaged memory, or of memory that sessions
// claim and no survey has shown. During the wait, the processes with unmanaged memory may end, or the next
// survey may contradict the claims. After the wait, growth is refused if it does not fit beside the memory
// that surveys have shown. Growth also waits for the first survey of a GPU, since only surveys can contradict
// claims.
MemoryBooks::Fit MemoryBooks::fit(const Session& session, const MemoryUse& use, const Residency& at) {
  SessionBook& its = book(session);
  if (could_ever_fit(session, use)) {
    its.crowded_since.reset();
    return Fit::yes;
  }
  const bool looks = surveyed(*session.gpu) || awaits_survey(*session.gpu);
  if (!looks || !could_ever_fit(session, use, Basis::uncrowded)) return Fit::never;
  if (!its.crowded_since) its.crowded_since = effects_.now();
  if (effects_.now() < crowded_until(session, at)) return Fit::later;
  return could_ever_fit(session, use, Basis::certain) ? Fit::yes : Fit::never;
}

// Returns the time at which the wait of fit() ends. The wait is shorter while the turn ends, since the drain
// may depend on the thread that asks for memory.
Nanoseconds MemoryBooks::crowded_until(const Session& session, const Residency& at) const {
  const SessionBook& its = of(session);
  const Nanoseconds due = awaits_survey(*session.gpu) ? gpus_[*session.gpu].first_survey_until
                                                      : *its.crowded_since + tuning_.crowd_patience;
  if (at.phase != Phase::leaving || at.drained) return due;
  const Nanoseconds since = its.unjudged ? its.requested_at : effects_.now();
  const Nanoseconds asked = its.deferred.empty() ? since : its.deferred_at;
  return std::min(due, std::max(at.gates_closed, asked) + tuning_.host_patience);
}

// Returns true if the tenant's memory, with `use` as the memory of `session`, stays within the tenant's limit
// and fits on the GPU beside all memory of other tenants that can never leave the GPU. In addition, every
// other tenant that could run without growth of pinned memory must still be able to run.
bool MemoryBooks::could_ever_fit(const Session& session, const MemoryUse& use, Basis basis) const {
  const Gpu& gpu = *session.gpu;
  // Memory that other sessions ask to pin counts as pinned.
  const auto use_of = [&](const Session* other) {
    if (other == &session) return use;
    MemoryUse its = as_granted(of(*other).use, of(*other).pin_request);
    if (other->tenant == session.tenant) return its;
    if (nothing_there(*other)) return MemoryUse{};
    its.pinned = unevictable_on(basis, *other, its).pinned;
    return its;
  };
  Bytes footprint;
  Bytes away;
  Bytes hidden;  // hidden memory of the tenant, which counts against its limit
  Bytes own_pinned;
  Bytes pinned;
  for (const Session* other : gpu.sessions) {
    const MemoryUse has = use_of(other);
    pinned += has.pinned;
    if (other->tenant != session.tenant) continue;
    footprint += has.footprint();
    away += other == &session ? holding(session, use).away : of(*other).away;
    own_pinned += has.pinned;
    if (basis != Basis::uncrowded) hidden += unreported(*other);
  }
  const Bytes room = usable(gpu, basis);
  const Bytes limit = session.tenant->limits.footprint;
  if (limit != Bytes{} && footprint + away + hidden > limit) return false;
  if (footprint + (pinned - own_pinned) > room) return false;
  if (use.pinned <= of(session).use.pinned) return true;

  const Bytes growth = use.pinned - of(session).use.pinned;
  std::map<const Tenant*, Bytes> needs;  // evictable memory of every other tenant
  for (const Session* other : gpu.sessions)
    if (other->tenant != session.tenant)
      needs[other->tenant] += minus(use_of(other).footprint(), use_of(other).pinned);
  return std::all_of(needs.begin(), needs.end(), [&](const auto& entry) {
    const Bytes need = entry.second + pinned;
    return need <= room || minus(need, growth) > room;
  });
}

// ---- host memory ----

MemoryBooks::Evictable MemoryBooks::evictable(const Tenant& tenant, const StepName& step,
                                              const Session* but) const {
  Evictable sum;
  for (const Session* session : tenant.sessions) {
    if (session == but) continue;
    const SessionBook& its = of(*session);
    sum.add({its.use, its.away, its.uncharged}, session->step == step);
  }
  return sum;
}

// Unused host memory for which no cgroup is charged can hold evicted memory later. To count this memory once,
// the swappable memory that has no host memory yet is subtracted from the unused memory.
void MemoryBooks::Evictable::add(const Holding& holding, bool same_step) {
  const MemoryUse& use = holding.use;
  const Bytes unused = minus(holding.uncharged, holding.away);
  const Bytes besides = holding.away + minus(unused, minus(use.swappable, use.host));
  const Bytes evictable = use.swappable + besides;
  of_all += evictable;
  held += std::max(use.swappable, use.host) + besides;
  if (same_step) of_step += evictable;
}

// A session that requests growth on the GPU may state less away memory than was granted, see Usage. The
// request is judged with this smaller amount.
MemoryBooks::Holding MemoryBooks::holding(const Session& session, const MemoryUse& use) const {
  const SessionBook& its = of(session);
  return {use, std::min(its.away, its.away_if_granted), its.uncharged};
}

// Does the same as evictable(), as if `session` had the memory `holding`.
MemoryBooks::Evictable MemoryBooks::evictable_with(const Session& session, const Holding& holding) const {
  Evictable sum = evictable(*session.tenant, session.step, &session);
  sum.add(holding, true);
  return sum;
}

// Returns the limit on host memory that the tenant would exceed if `session` had the memory `holding`, or
// zero if the tenant would exceed no limit. The limit of a step covers the away memory of the step's
// processes, and the memory that they may have to evict. The limit of the job covers all of its steps.
// Sessions report these two limits. The site's limit covers the whole tenant.
Bytes MemoryBooks::passed_host_limit(const Session& session, const Holding& holding) const {
  const Evictable sum = evictable_with(session, holding);
  const MemoryUse& use = holding.use;
  const Bytes site = session.tenant->limits.host;
  const Bytes job = of(session).job_host_limit;
  if (use.host_limit != Bytes{} && sum.of_step > use.host_limit) return use.host_limit;
  if (job != Bytes{} && sum.of_all > job) return job;
  if (site != Bytes{} && sum.of_all > site) return site;
  return {};
}

// Returns true if the tenant exceeds the site's limit when the host memory counts that its processes still
// hold for device memory that they have freed.
bool MemoryBooks::waits_for_host(const Session& session, const Holding& holding) const {
  const Bytes site = session.tenant->limits.host;
  return site != Bytes{} && evictable_with(session, holding).held > site;
}

// The amount that a process of `step` may still allocate before it reaches a limit on host memory.
Bytes MemoryBooks::host_room(const Tenant& tenant, const StepName& step) const {
  const Evictable sum = evictable(tenant, step);
  Bytes room{~0ull};
  if (tenant.limits.host != Bytes{}) room = minus(tenant.limits.host, sum.held);
  for (const Session* session : tenant.sessions) {
    const SessionBook& its = of(*session);
    if (session->step == step && its.use.host_limit != Bytes{})
      room = std::min(room, minus(its.use.host_limit, sum.of_step));
    if (its.job_host_limit != Bytes{}) room = std::min(room, minus(its.job_host_limit, sum.of_all));
  }
  return room;
}

// Sessions subtract a margin from each limit that they report. The limit of a step may be smaller than the
// job's limit.
HostLimits MemoryBooks::host_limits(const Tenant& tenant) const {
  Bytes of_steps, of_job;
  for (const Session* session : tenant.sessions) {
    of_steps = std::max(of_steps, of(*session).use.host_limit);
    of_job = std::max(of_job, of(*session).job_host_limit);
  }
  HostLimits limits;
  limits.units = host_memory::stated(tenant.limits.host);
  if (const Bytes most = std::max(of_steps, of_job); most != Bytes{})
    limits.job = host_memory::limit_for(most);
  limits.budget = host_memory::lower(limits.units, host_memory::stated(of_steps));
  return limits;
}

Bytes MemoryBooks::host_held(const Tenant& tenant) const {
  Bytes sum;
  for (const Session* session : tenant.sessions)
    sum += of(*session).use.host + std::max(of(*session).away, of(*session).uncharged);
  return sum;
}

// If the growth exceeds both the limit by units and the job's own limit, the result is the limit by units.
// The reason is that more units also raise the job's own limit on sites that add host memory for each unit.
MemoryBooks::Passed MemoryBooks::passed_limit(const Session& session, Bytes size, bool pinned) const {
  MemoryUse use = of(session).use;
  if (!pinned) use.swappable += size;
  Bytes footprint = size;
  for (const Session* other : session.tenant->sessions)
    if (other->gpu == session.gpu) footprint += of(*other).size();
  const Holding holding{use, of(session).away, of(session).uncharged};
  const Evictable sum = evictable_with(session, holding);
  const Limits& limits = session.tenant->limits;
  const Bytes job = of(session).job_host_limit;
  Passed passed;
  if (limits.footprint != Bytes{} && footprint > limits.footprint)
    passed = {Bound::own, limits.footprint, footprint};
  else if (pinned)
    passed = {};  // pinned memory needs no host memory
  else if (limits.host != Bytes{} && sum.of_all > limits.host)
    passed = {Bound::units, limits.host, sum.of_all};
  else if (const Bytes most = passed_host_limit(session, holding); most != Bytes{})
    passed = {Bound::job, most, job != Bytes{} && sum.of_all > job ? sum.of_all : sum.of_step};
  const bool needs_gpu = pinned || !may_grow_away(session);
  if (passed.bound != Bound::none && needs_gpu && footprint > session.gpu->capacity)
    passed = {Bound::gpu, session.gpu->capacity, footprint};
  return passed;
}

// A process that may have away memory can allocate beyond the room on the GPU, up to the limits on its
// memory.
MemoryBooks::Room MemoryBooks::room(const Gpu& gpu, const Viewer& viewer) const {
  Bytes own;
  Bytes hidden;  // hidden memory of the tenant's processes
  Bytes others_pinned;
  for (const Session* session : gpu.sessions) {
    if (session->tenant == viewer.tenant) {
      own += of(*session).use.footprint();
      hidden += unreported(*session);
    } else {
      others_pinned += believed_pins(*session, of(*session).use.pinned);
    }
  }
  const Bytes away = viewer.tenant == nullptr ? Bytes{} : away_on(gpu, *viewer.tenant);
  const Bytes total = shown_total(gpu, viewer);
  Bytes free;
  if (away_shown(gpu, viewer)) {
    free = minus(total, hidden + own + away);
  } else {
    free = minus(std::min(minus(usable(gpu), others_pinned), minus(total, hidden)), own);
    if (viewer.limit != Bytes{}) free = std::min(free, minus(viewer.limit, hidden + own + away));
  }
  if (viewer.tenant != nullptr) free = std::min(free, host_room(*viewer.tenant, viewer.step));
  const Bytes on_gpu = minus(minus(usable(gpu), others_pinned), own);
  return {.total = total, .free = free, .away = minus(free, on_gpu)};
}

Bytes MemoryBooks::shown_total(const Gpu& gpu, const Viewer& viewer) const {
  constexpr Bytes kPage = mebibytes(2);
  Bytes most = gpu.capacity + away_shown(gpu, viewer).value_or(Bytes{});
  if (viewer.limit != Bytes{}) most = std::min(most, viewer.limit);
  return {most.count / kPage.count * kPage.count};
}

}  // namespace sharedgpu
