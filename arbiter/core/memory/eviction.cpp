// SPDX-License-Identifier: Apache-2.0
// The movement of memory: free memory of the GPU goes to the sessions that need memory. If the free memory
// does not suffice, other sessions evict.
//
// To change the order in which sessions evict, change the sort in evict(), which reads SessionBook and
// Residency. If the sort needs another value, add the value to Residency (residency.h) and set it in
// turns/pages.cpp. Tests: tests/unit/arbiter/core/eviction.cpp, core.cpp and promises.cpp; the property tests
// hold for any order. Since decisions change, regenerate tests/property/arbiter/decisions.golden (`decisions
// --record`). docs/architecture.md, "A turn", states the order. The interposer (interposer/memory) orders the
// handles within a session.
#include <algorithm>

#include "arbiter/core/memory/memory_books.h"

namespace sharedgpu {

// Finds sessions that were asked to evict and make no progress. For a while, the memory of these sessions
// counts as staying on the GPU.
void MemoryBooks::notice_stuck(const Gpu& gpu, const Residencies& all) {
  for (const Session* session : gpu.sessions) {
    SessionBook& its = book(*session);
    const Residency& at = all[*session];
    if (stuck(*session, at)) effects_.wake_at(its.stuck_until);
    if (at.phase == Phase::leaving) {
      effects_.wake_at(at.gates_closed + tuning_.step_after);
      effects_.wake_at(at.gates_closed + tuning_.patience);
    }
    if (!at.drained || its.resident_limit >= its.use.resident) continue;
    const Nanoseconds due = its.evicted_at + timeout_for(Bytes{});  // only a report of less resident memory
                                                                    // is progress
    effects_.wake_at(due);
    if (effects_.now() < due) continue;
    its.stuck_until = effects_.now() + tuning_.patience;
    keep_on_gpu(*session);
    effects_.wake_at(its.stuck_until);
    effects_.note(*session->tenant, "does not evict its memory; the memory stays on the GPU for now");
  }
}

void MemoryBooks::begin(const Gpu& gpu, const Residencies& at) {
  admit_deferred(gpu, at);
  gpus_[gpu].usable = usable(gpu);
}

// Hands out free memory in this order, and asks for evictions if the free memory does not suffice:
//   1. pinned memory, which cannot wait for a turn;
//   2. sessions that run;
//   3. a tenant that needs memory to drain;
//   4. sessions that ask for memory while they leave;
//   5. the tenant for which the turn began;
//   6. the other members of the running set.
void MemoryBooks::rebalance(const Gpu& gpu, const Residencies& all) {
  const std::vector<Session*>& sessions = gpu.sessions;
  Bytes missing = pin_in_place(gpu, all);
  const Bytes promised_now = promised(gpu, all);
  Bytes room = minus(usable_now(gpu), promised_now);
  missing += minus(promised_now, usable_now(gpu));
  const auto lacks = [](const SessionBook& its) {
    return minus(its.use.swappable, std::max({its.resident_limit, its.use.resident, its.restore_in_flight}));
  };
  // A session gets all the memory that it lacks, or none. If two sessions each got a part of the memory that
  // they lack, each could wait for the memory that the other session got.
  const auto fill = [&](SessionBook& its) {
    const Bytes costs = lacks(its);
    if (costs <= room) its.resident_limit = std::max(its.resident_limit, its.use.swappable);
    missing += minus(costs, room);
    room = minus(room, costs);
  };
  const auto give = [&](Bytes& limit, Bytes target, Bytes already_counted) {
    if (target <= limit) return;
    const Bytes costs = minus(target, std::max(limit, already_counted));
    const Bytes given = std::min(costs, room);
    room -= given;
    missing += costs - given;
    limit = std::max(limit, std::min(target, std::max(limit, already_counted) + given));
  };
  for (const Session* session : sessions)
    if (nothing_there(*session)) give_for_nothing(*session, all[*session]);
  for (const Session* session : sessions) give(book(*session).pin_limit, of(*session).use.pinned, Bytes{});
  Bytes growing;
  for (const Session* session : sessions)
    if (all[*session].phase == Phase::running) {
      const Bytes before = missing;
      fill(book(*session));
      growing += missing - before;
    }
  // Only one tenant at a time gets the memory without which it cannot drain. Other leaving tenants may have
  // to evict for that tenant.
  const Tenant* first = first_to_fill(gpu, all);
  for (const Session* session : sessions)
    if (session->tenant == first && needs_growth_to_drain(*session, all[*session])) fill(book(*session));
  for (const Session* session : sessions)
    if (waits_to_grow(*session, all[*session]) && lacks(of(*session)) <= room &&
        can_be_filled(*session->tenant, all))
      fill(book(*session));
  Bytes grows_then;
  for (const bool leads : {true, false})
    for (const Session* session : sessions)
      if (all[*session].phase == Phase::entering && all[*session].leads == leads) {
        SessionBook& its = book(*session);
        grows_then += its.forecast.deferred();
        give(its.resident_limit, its.use.swappable, std::max(its.use.resident, its.restore_in_flight));
      }

  missing += minus(grows_then, room);
  if (growing != Bytes{}) missing += minus(expected_growth(gpu, all), growing);
  if (missing != Bytes{}) evict(gpu, missing, first, all);
}

// Call for a session whose process has nothing on the GPU according to surveys. Raises the session's limits
// to the memory that it requests, the resident limit only during its turn. No other session evicts for this.
void MemoryBooks::give_for_nothing(const Session& session, const Residency& at) {
  SessionBook& its = book(session);
  its.pin_limit = std::max(its.pin_limit, its.use.pinned);
  if (at.phase == Phase::running || at.phase == Phase::entering)
    its.resident_limit = std::max(its.resident_limit, its.use.swappable);
}

// Returns the amount by which the running sessions are expected to grow soon, at least evict_step. The
// callers have this amount evicted in advance, and host memory prepared for it.
Bytes MemoryBooks::expected_growth(const Gpu& gpu, const Residencies& at) const {
  Bytes sum;
  for (const Session* session : gpu.sessions) {
    if (at[*session].phase != Phase::running || nothing_there(*session)) continue;
    const SessionBook& its = of(*session);
    sum += std::min(its.forecast.expected(effects_.now()), minus(usable_now(gpu), its.use.footprint()));
  }
  return std::max(sum, tuning_.evict_step);
}

// Grants requests to pin resident memory in place: the memory stays where it is, and counts as pinned. During
// a restore, the session may not have received its new limit yet, and may restore up to the old limit in
// addition to what it pins. So there must be room for the old limit and the pinned memory. A request at the
// end of a turn is refused after a timeout, since the drain may depend on the answer. Returns the amount of
// memory that is missing for all requests.
Bytes MemoryBooks::pin_in_place(const Gpu& gpu, const Residencies& all) {
  Bytes missing;
  for (const Session* session : gpu.sessions) {
    SessionBook& its = book(*session);
    const Residency& at = all[*session];
    if (its.pin_request == Bytes{}) continue;
    if (at.at_work || at.drained) {
      const Bytes pins = std::min({its.pin_request, its.use.swappable, its.use.resident});
      const SessionBook before = its;
      const Bytes promised_before = promised(*session, at);
      its.use.swappable -= pins;
      its.use.resident -= pins;
      its.use.pinned += pins;
      its.pin_limit += pins;
      if (at.at_work && !at.submits_once) its.resident_limit = minus(its.resident_limit, pins);
      if (at.drained) its.resident_limit = std::min(its.resident_limit, its.use.resident);
      its.pin_request = {};
      // The session restores nothing while it waits for the answer, so evicted memory stays evicted.
      if (at.phase == Phase::running)
        its.restore_in_flight = std::min(its.restore_in_flight, its.use.swappable);
      const Bytes lacks = minus(promised(gpu, all), usable_now(gpu));
      if (lacks == Bytes{} || promised(*session, at) <= promised_before) continue;
      its = before;
      missing += lacks;
    }
    if (at.phase != Phase::leaving || at.drained) continue;
    const Nanoseconds due = its.requested_at + tuning_.settle;
    effects_.wake_at(due);
    if (effects_.now() >= due) refuse_all(*session);
  }
  return missing;
}

// Several tenants may be unable to drain without more memory. Returns the tenant that gets this memory first:
// the tenant whose gates closed first, among the tenants whose memory fits beside all memory that cannot
// leave the GPU at present. Returns null if there is no such tenant.
const Tenant* MemoryBooks::first_to_fill(const Gpu& gpu, const Residencies& at) const {
  const Session* first = nullptr;
  for (const Session* session : gpu.sessions) {
    if (!needs_growth_to_drain(*session, at[*session])) continue;
    const bool earlier = first == nullptr || at[*session].gates_closed < at[*first].gates_closed;
    if (earlier && can_be_filled(*session->tenant, at)) first = session;
  }
  return first == nullptr ? nullptr : first->tenant;
}

// Returns true if all of the tenant's memory can be on its GPUs beside the memory of other tenants' sessions
// that have not drained, and the memory that their drained sessions cannot evict at present.
bool MemoryBooks::can_be_filled(const Tenant& tenant, const Residencies& all) const {
  const auto fits_on = [&](const Gpu& gpu) {
    Bytes needed;
    for (const Session* session : gpu.sessions) {
      const Residency& at = all[*session];
      if (session->tenant == &tenant)
        needed += whole(*session, at);
      else if (!at.drained)
        needed += promised(*session, at);
      else
        needed += staying(*session, at);
    }
    return needed <= usable(gpu);
  };
  return std::all_of(tenant.sessions.begin(), tenant.sessions.end(),
                     [&](const Session* session) { return !attached(session) || fits_on(*session->gpu); });
}

// Asks tenants without a lease, least recently run first, to evict memory that is not being evicted already.
// If `first` is set, that tenant cannot drain without more memory, so other leaving tenants evict as well.
void MemoryBooks::evict(const Gpu& gpu, Bytes shortage, const Tenant* first, const Residencies& all) {
  std::vector<const Session*> victims;
  for (const Session* session : gpu.sessions) {
    const SessionBook& its = of(*session);
    const Residency& at = all[*session];
    if (!at.drained || stuck(*session, at) || nothing_there(*session)) continue;
    const bool leaving = at.phase == Phase::leaving && !at.revoked;
    if (leaving && (first == nullptr || session->tenant == first)) continue;
    shortage = minus(shortage, minus(its.use.resident, its.resident_limit));
    victims.push_back(session);
  }
  std::stable_sort(victims.begin(), victims.end(), [&](const Session* a, const Session* b) {
    const Residency& one = all[*a];
    const Residency& other = all[*b];
    if (one.phase != other.phase) return one.phase == Phase::out;
    return one.last_ran < other.last_ran;
  });
  for (const Session* victim : victims) {
    if (shortage == Bytes{}) return;
    SessionBook& its = book(*victim);
    const Bytes kept = std::min(its.resident_limit, its.use.resident);
    if (kept == Bytes{}) continue;
    const Bytes asked = std::min(kept, shortage);
    shortage -= asked;
    // If the session has nothing else to evict, the timeout of its eviction begins with this order.
    if (its.resident_limit >= its.use.resident) its.evicted_at = effects_.now();
    its.resident_limit = kept - asked;
    its.evicting = true;
    its.evict_to = its.resident_limit;
    if (all[*victim].phase == Phase::leaving) its.taken += asked;
    effects_.send(*victim, Evict{.allowed = its.resident_limit});
  }
}

std::vector<const Session*> MemoryBooks::take_restores(const Gpu& gpu, const Residencies& at) {
  std::vector<const Session*> restores;
  for (const Session* session : gpu.sessions) {
    SessionBook& its = book(*session);
    if (at[*session].phase != Phase::entering || its.ready) continue;
    const bool all = its.resident_limit >= its.use.swappable;
    const bool news = its.restoring ? its.resident_limit > its.restored_limit || (all && !its.restored_all)
                                    : all || its.resident_limit > its.use.resident;
    if (!news) continue;
    its.restoring = true;
    its.restored_limit = its.resident_limit;
    if (all && !its.all_since) its.all_since = effects_.now();
    its.restored_all = all;
    note_progress(*session);
    restores.push_back(session);
  }
  return restores;
}

// The accounting may promise more memory than there is, since sizes of contexts are estimates and unmanaged
// memory may be unknown. The driver then refuses a restore, and tenants without a lease evict memory in
// steps.
void MemoryBooks::evict_for_shortage(const Gpu& gpu, const Residencies& at) {
  Bytes shortage;
  for (const Session* session : gpu.sessions) {
    SessionBook& its = book(*session);
    if (at[*session].phase != Phase::entering || its.ready || !its.restored_all) continue;
    if (nothing_there(*session)) continue;
    // Only Ready counts as progress here, not reports: a session whose restore the driver refuses also sends
    // reports.
    const Nanoseconds begun = std::max(*its.all_since, its.pressed);
    Nanoseconds due = begun + tuning_.shortage + std::chrono::seconds(its.use.swappable.count >> 30);
    if (effects_.now() >= due) {
      its.pressed = effects_.now();
      due = effects_.now() + tuning_.shortage;
      effects_.note_routine(*session->tenant,
                            "finds less free memory on the GPU than the arbiter has computed");
      // The session may report memory as resident before the driver has given it physical memory, so at least
      // evict_step is evicted.
      shortage += std::max(minus(its.use.swappable, its.use.resident), tuning_.evict_step);
    }
    effects_.wake_at(due);
  }
  if (shortage != Bytes{}) evict(gpu, shortage, nullptr, at);
}

// Memory is evicted before a suspension, since a stopped process cannot evict and other tenants may need the
// room. A session keeps its memory if another process of its job may need this session's work before the
// turn can end.
void MemoryBooks::evict_before_suspension(const Gpu& gpu, const Residencies& all) {
  for (const Session* session : gpu.sessions) {
    SessionBook& its = book(*session);
    const Residency& at = all[*session];
    if (!at.suspending || !at.drained || stuck(*session, at)) continue;
    if (at.phase == Phase::leaving && at.wants && at.peers_drain) continue;
    if (std::min(its.resident_limit, its.use.resident) == Bytes{}) continue;
    its.evicted_at = effects_.now();
    its.resident_limit = {};
    its.evicting = true;
    its.evict_to = its.resident_limit;
    effects_.send(*session, Evict{.allowed = {}});
  }
}

}  // namespace sharedgpu
