// SPDX-License-Identifier: Apache-2.0
// Processes the reports of sessions on their memory, and computes the sessions' limits.
#include <algorithm>
#include <utility>

#include "arbiter/core/memory/memory_books.h"

namespace sharedgpu {
namespace {

// The contexts that a tenant reports are believed up to this fraction of a GPU.
constexpr std::uint64_t kContextPart = 4;
constexpr std::chrono::minutes kNotePause{1};  // least time between two log lines about the same failure

}  // namespace

void MemoryBooks::add(const Session& session) {
  SessionBook& book = books_.begin(session);
  book.forecast = GrowthForecast(tuning_.surge_pause);
  book.unreported = session.resumes;
  book.sharers = session.resumes ? 0 : 1;  // zero: unknown which number an earlier arbiter has sent
  book.last_progress = effects_.now();
}

void MemoryBooks::expect_host_limits(const Session& session, Bytes of_step, Bytes of_job) {
  book(session).use.host_limit = of_step;
  book(session).job_host_limit = of_job;
}

// The heir is the session on the new connection of the same process. The heir begins without requests and
// orders, since the last requests and orders on the old connection may not have arrived.
void MemoryBooks::hand_over(const Session& old, const Session& heir) {
  const SessionBook& from = of(old);
  SessionBook& to = book(heir);
  to.use = from.use;
  to.away = to.reported_away = from.away;
  to.uncharged = from.uncharged;
  to.resident_limit = std::max(from.resident_limit, from.restore_in_flight);
  to.use.resident = std::max(to.use.resident, std::min(to.resident_limit, to.use.swappable));
  to.pin_limit = from.pin_limit;
  to.granted_pins = from.granted_pins;
  to.peak = from.peak;
  to.forecast = from.forecast;
  to.evidence = from.evidence;
  to.unreported = from.unreported || (!attached(&old) && to.unreported);
  to.sharers = 0;  // unknown, since the last Prepare may not have arrived
}

// Records a session's report of its memory. Growth is recorded only if it was requested (`may_grow`): a
// session that could grow without a request would starve others.
void MemoryBooks::take_use(const Session& session, MemoryUse reported, bool may_grow, const Residency& at) {
  SessionBook& its = book(session);
  reported.settling = {};
  if (!may_grow) {
    reported.swappable = std::min(reported.swappable, its.use.swappable);
    reported.pinned = std::min(reported.pinned, its.use.pinned);
  }
  // A session that has drained, or has no Restore yet, restores nothing; if it reports more resident memory,
  // the increase is memory that it pins in place. A session at work may have freed memory and then, without a
  // request, allocated memory again up to its limit.
  Bytes most = its.use.resident;
  if (!at.drained && (at.phase != Phase::entering || its.restoring))
    most = std::max({most, reported.swappable, its.resident_limit, its.restore_in_flight});
  reported.resident = std::min(reported.resident, most);
  // Contexts reduce the memory of other sessions, so reported contexts are believed only up to a bound.
  its.told_context = reported.context;
  Bytes believed{session.gpu->total.count / kContextPart};
  for (const Session* other : session.tenant->sessions)
    if (other != &session && other->gpu == session.gpu) believed = minus(believed, of(*other).use.context);
  reported.context = std::min(reported.context, believed);

  if (reported.resident < its.use.resident) its.evicted_at = effects_.now();
  const bool grew = reported.swappable > its.use.swappable;
  // A session that was ready and has grown needs another Restore, and the time Tuning::shortage begins again.
  if (grew && std::exchange(its.ready, false)) its.pressed = effects_.now();
  if (grew) its.forecast.grew(its.use.swappable, reported.swappable, effects_.now());
  if (reported.swappable < its.use.swappable) its.forecast.fell();
  // `taken` counts evicted memory only: neither memory that the session has freed, nor memory that it has
  // allocated later.
  its.taken = std::min(its.taken, minus(std::min(its.use.swappable, reported.swappable), its.resident_limit));
  its.use = reported;
  if (its.evict_to && its.use.resident <= *its.evict_to) its.evict_to.reset();
  its.peak = std::max(its.peak, reported.footprint());
  its.pin_limit = std::min(its.pin_limit, reported.pinned);
  its.granted_pins = std::min(its.granted_pins, reported.pinned);
  // When a session at work frees memory, its limit falls, so it must request memory before it allocates
  // again. The limit of a session that restores does not fall: the session may be about to request growth.
  if (at.at_work && !at.submits_once) its.resident_limit = std::min(its.resident_limit, reported.swappable);
  if (at.phase == Phase::out) its.resident_limit = std::min(its.resident_limit, reported.resident);
}

void MemoryBooks::report_residency(const Session& session, const MemoryUse& use, const Residency& at) {
  MemoryUse reported = use;
  reported.swappable = of(session).use.swappable;
  reported.pinned = of(session).use.pinned;
  take_use(session, reported, false, at);
}

void MemoryBooks::on_ready(const Session& session) {
  SessionBook& its = book(session);
  its.ready = its.use.resident >= its.use.swappable;
  if (!its.ready) return;
  its.evicting = false;
  // The session may have freed memory after a Restore with a higher limit was sent, and that Restore may not
  // have arrived yet.
  const bool more_to_come = its.restored_same_twice || its.restored_limit > its.use.resident;
  its.restore_in_flight = more_to_come ? its.restored_limit : Bytes{};
}

void MemoryBooks::on_drained(const Session& session) {
  SessionBook& its = book(session);
  its.restore_in_flight = {};
  its.evict_to.reset();
  its.taken = {};
  its.resident_limit = its.use.resident;
}

void MemoryBooks::begin_restore(const Session& session, bool complete) {
  SessionBook& its = book(session);
  its.ready = complete;
  its.restoring = its.restored_all = its.restored_same_twice = false;
  its.all_since.reset();
  its.restore_in_flight = {};
  its.restored_limit = {};
  its.stuck_until = {};
  its.evict_to.reset();
  its.taken = {};
  begin_turn(session);
}

void MemoryBooks::open(const Session& session) {
  SessionBook& its = book(session);
  its.forecast.resume(effects_.now());
  if (attached(&session)) its.resident_limit = std::min(its.resident_limit, its.use.swappable);
}

void MemoryBooks::defer_growth(const Session& session) {
  SessionBook& its = book(session);
  its.forecast.suspend(effects_.now(), minus(usable_now(*session.gpu), its.use.footprint()));
}

void MemoryBooks::hold_at_resident(const Session& session) {
  SessionBook& its = book(session);
  its.resident_limit = std::min(its.resident_limit, its.use.resident);
}

void MemoryBooks::note_eviction_report(const Session& session, bool failed) {
  SessionBook& its = book(session);
  its.stuck_until = {};
  if (!failed || !its.evicting) return;
  its.evict_to.reset();
  its.stuck_until = effects_.now() + tuning_.stuck_retry;
  keep_on_gpu(session);
  if (its.stuck_noted && effects_.now() - *its.stuck_noted < kNotePause) return;
  its.stuck_noted = effects_.now();
  effects_.note(*session.tenant,
                "could not evict all of its memory (host memory exhausted?); the rest stays on the GPU until "
                "the next retry");
}

// Call if the session does not evict: its memory then counts as staying on the GPU. Reported memory that
// surveys contradict does not count, so that no session can deprive others of memory by false reports.
void MemoryBooks::keep_on_gpu(const Session& session) {
  SessionBook& its = book(session);
  its.use.resident = minus(its.use.resident, its.evidence.absent());
  its.resident_limit = its.use.resident;
}

// ---- values derived from the accounting ----

// Outside a turn, the memory of a session only shrinks, so the session has at most the memory of its last
// report.
Bytes MemoryBooks::promised(const Session& session, const Residency& at) const {
  if (nothing_there(session)) return {};
  const SessionBook& its = of(session);
  Bytes resident = its.use.resident;
  if (at.phase != Phase::out) resident = std::max({resident, its.resident_limit, its.restore_in_flight});
  return minus(resident, its.disproved()) + believed_pins(session, its.pin_limit);
}

Bytes MemoryBooks::promised(const Gpu& gpu, const Residencies& at) const {
  Bytes sum;
  for (const Session* session : gpu.sessions) sum += promised(*session, at[*session]);
  return sum;
}

Bytes MemoryBooks::demand(const Session& session, const Residency& at) const {
  if (nothing_there(session)) return {};
  const SessionBook& its = of(session);
  Bytes resident = std::max({its.use.swappable, its.use.resident, its.restore_in_flight});
  if (at.phase == Phase::entering) resident = std::max(resident, its.resident_limit);
  return minus(resident, its.disproved()) + believed_pins(session, std::max(its.use.pinned, its.pin_limit));
}

// The memory that a session has on the GPU once its whole footprint is resident.
Bytes MemoryBooks::whole(const Session& session, const Residency& at) const {
  if (nothing_there(session)) return {};
  const SessionBook& its = of(session);
  return std::max(promised(session, at) - believed_pins(session, its.pin_limit), its.use.swappable) +
         believed_pins(session, std::max(its.pin_limit, its.use.pinned));
}

Bytes MemoryBooks::staying(const Session& session, const Residency& at) const {
  if (nothing_there(session)) return {};
  const SessionBook& its = of(session);
  return believed_pins(session, its.pin_limit) + (stuck(session, at) ? its.use.resident : Bytes{});
}

Bytes MemoryBooks::unevictable(const Session& session, const Residency& at, bool tenant_grows) const {
  if (nothing_there(session)) return {};
  const SessionBook& its = of(session);
  const Bytes pinned = believed_pins(session, std::max(its.pin_limit, its.use.pinned));
  if (tenant_grows) return whole(session, at);
  const bool drains = at.phase == Phase::leaving && !(at.revoked && at.drained);
  const bool overdue = drains && (at.frozen || effects_.now() - at.gates_closed >= tuning_.patience);
  if (overdue) return promised(session, at) - believed_pins(session, its.pin_limit) + pinned;
  return stuck(session, at) ? its.use.resident + pinned : pinned;
}

bool MemoryBooks::has_nothing(const Session& session) const {
  const SessionBook& its = of(session);
  return !its.unreported && its.use.context == Bytes{} && its.use.pinned == Bytes{} &&
         its.use.resident == Bytes{};
}

bool MemoryBooks::complete(const Tenant& tenant) const {
  return std::all_of(tenant.sessions.begin(), tenant.sessions.end(), [this](const Session* session) {
    const SessionBook& its = of(*session);
    return !attached(session) || (!its.evicting && its.use.resident >= its.use.swappable);
  });
}

bool MemoryBooks::stuck(const Session& session, const Residency& at) const {
  return at.frozen || of(session).stuck_until > effects_.now();
}

// Returns true if the session requests memory while its turn ends, and its limits do not allow it yet.
bool MemoryBooks::waits_to_grow(const Session& session, const Residency& at) const {
  const SessionBook& its = of(session);
  return at.phase == Phase::leaving && (at.at_work || at.comes_late) && !its.requests.empty() &&
         its.lacks_room();
}

// Returns true if the drain may need more memory of the session on the GPU. There are two cases: the
// session's next submission may need evicted memory while other processes wait for that submission, or a
// thread that the drain waits for is allocating. Requested growth counts as needed only when step_after has
// passed, since most drains end earlier without it.
bool MemoryBooks::needs_growth_to_drain(const Session& session, const Residency& at) const {
  if (at.frozen || nothing_there(session)) return false;
  if (blocks_peers(at)) return of(session).use.resident < of(session).use.swappable;
  return waits_to_grow(session, at) && effects_.now() >= at.gates_closed + tuning_.step_after;
}

bool MemoryBooks::needs_growth_to_drain(const Tenant& tenant, const Residencies& at) const {
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(),
                     [&](const Session* session) { return needs_growth_to_drain(*session, at[*session]); });
}

bool MemoryBooks::displaced(const Session& session, const Residency& at) const {
  const SessionBook& its = of(session);
  const bool may_block_peers = at.blocks_peers_from != Nanoseconds::max();
  return may_block_peers && std::min(its.taken, minus(its.use.swappable, its.resident_limit)) != Bytes{};
}

Bytes MemoryBooks::owed(const Session& session, const Residency& at) const {
  const SessionBook& its = of(session);
  if (at.phase != Phase::out || !its.evict_to || nothing_there(session)) return {};
  return minus(minus(its.use.resident, its.evidence.absent()), *its.evict_to);
}

Bytes MemoryBooks::kept_by_stop(const Session& session, const Residency& at) const {
  const SessionBook& its = of(session);
  const bool in_turn = at.phase != Phase::out && at.phase != Phase::leaving;
  if (in_turn || !at.frozen || nothing_there(session)) return {};
  return minus(its.use.resident, its.evidence.absent());
}

Nanoseconds MemoryBooks::timeout_for(Bytes moving) const {
  return tuning_.patience + std::chrono::seconds(moving.count >> 30);
}

}  // namespace sharedgpu
