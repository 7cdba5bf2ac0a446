// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/scheduler/overuse.h"

#include <algorithm>
#include <utility>

#include "arbiter/core/model/answers.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

// The daemon needs at most half a minute to end a process. The tenant may start new processes in this time,
// so the core then repeats its request.
constexpr Nanoseconds kUntilEnded = 31s;
// The measurement is reset only after no tenant has waited for this time, since a tenant may stop waiting for
// a moment and then wait again.
constexpr Nanoseconds kCalm = 1min;

// The time that an eviction takes on a heavily loaded host, at 64 MiB/s.
Nanoseconds slow_copy(Bytes bytes) {
  constexpr std::uint64_t kPerSecond = 64ull << 20;
  return std::chrono::milliseconds(bytes.count / (kPerSecond / 1000));
}

}  // namespace

void Overuse::watch(const Domain& domain, const Residencies& at) {
  Obstacles obstacles;
  for (const Tenant* tenant : domain.tenants) watch(*tenant, at, obstacles);
}

void Overuse::note_entry(const Tenant& tenant, const Residencies& at) {
  if (has_left(tenant, at)) tenants_[tenant] = {};
}

void Overuse::note_end(const Tenant& tenant) {
  Row& its = tenants_[tenant];
  pass_time(its);
  its.clock = Clock::stands;
  its.overdue.reset();
  its.owed = {};  // memory that was freed because its process ended does not count as evicted
}

void Overuse::pass_over(const Model& model, Nanoseconds standstill) {
  for (const auto& [id, tenant] : model.tenants()) tenants_[tenant].watched += standstill;
}

void Overuse::forget_responses(const Model& model) {
  for (const auto& [id, tenant] : model.tenants()) tenants_[tenant].next_response.clear();
}

void Overuse::watch(const Tenant& tenant, const Residencies& at, Obstacles& obstacles) {
  Row& its = tenants_[tenant];
  pass_time(its);
  if (has_left(tenant, at)) {
    its = {};
    return;
  }
  const std::vector<const Session*> sessions = awaited(tenant, at, obstacles);
  if (sessions.empty()) return wait_calmly(tenant, its);
  const bool forgotten = its.calm_since && effects_.now() - *its.calm_since >= kCalm;
  if (!its.since || forgotten) begin(its);
  its.calm_since.reset();
  note_progress(tenant, its, at);
  const Session& session = *sessions.front();
  its.clock = clock_for(tenant, session, at, obstacles);
  its.overdue = Overdue{.gpu = session.gpu->uuid,
                        .since = *its.since,
                        .stopped = at[session].frozen,
                        .evicts = at[session].phase == Phase::out};
  if (tuning_.overuse && its.clock != Clock::stands) respond(tenant, sessions, its);
}

// Call while no other tenant waits for this tenant: this tenant is in its turn, or others wait for a third
// tenant, or no tenant waits.
void Overuse::wait_calmly(const Tenant& tenant, Row& its) const {
  its.overdue.reset();
  its.clock = Clock::stands;
  its.owed = {};
  if (others_wait(tenant))
    its.calm_since.reset();
  else if (!its.calm_since)
    its.calm_since = effects_.now();
}

// Starts the measurement again. Keeps `next_response`, so that no response is repeated too early.
void Overuse::begin(Row& its) const {
  const Nanoseconds most = tuning_.overuse ? tuning_.overuse->most : Nanoseconds{};
  its.since = its.watched = effects_.now();
  its.lasted = {};
  its.spare = {};
  its.spare_in(Clock::evicts) = tuning_.patience;
  its.spare_in(Clock::grows) = most;
  // Memory of this tenant may have been evicted for another tenant. That tenant may wait for memory for the
  // time `most`, and then drain for the time `most`, before the daemon ends it.
  its.spare_in(Clock::lacks) = 2 * most + kUntilEnded;
  its.owed = {};
}

void Overuse::pass_time(Row& its) const {
  const Nanoseconds passed = effects_.now() - std::exchange(its.watched, effects_.now());
  if (its.clock == Clock::stands) return;
  Nanoseconds& spare = its.spare_in(its.clock);
  const Nanoseconds spared = std::min(spare, passed);
  spare -= spared;
  its.lasted += passed - spared;
}

// The time that does not count grows with the memory that the tenant has evicted since the last check, up to
// `patience`. Memory that a tenant need not evict any more, because its turn begins, does not count.
void Overuse::note_progress(const Tenant& tenant, Row& its, const Residencies& at) const {
  Bytes owed;
  for (const Session* session : tenant.sessions)
    if (attached(session)) owed += memory_.owed(*session, at[*session]);
  const Bytes left = minus(std::exchange(its.owed, owed), owed);
  if (turns_.phase_of(tenant) != Phase::out) return;
  Nanoseconds& spare = its.spare_in(Clock::evicts);
  spare = std::min(tuning_.patience, spare + slow_copy(left));
}

bool Overuse::has_left(const Tenant& tenant, const Residencies& at) const {
  if (turns_.phase_of(tenant) != Phase::out) return false;
  return std::none_of(tenant.sessions.begin(), tenant.sessions.end(), [&](const Session* session) {
    return attached(session) && (memory_.owed(*session, at[*session]) != Bytes{} ||
                                 memory_.kept_by_stop(*session, at[*session]) != Bytes{});
  });
}

// Returns the sessions of the tenant for which others wait; none unless the tenant is leaving, evicting or
// stopped. If the processes of only some of these sessions are stopped, returns the other sessions. If all
// are stopped, returns the sessions whose memory leaves no room for a waiting tenant; if there are no such
// sessions, returns all.
std::vector<const Session*> Overuse::awaited(const Tenant& tenant, const Residencies& at,
                                             Obstacles& obstacles) const {
  std::vector<const Session*> found;
  const Phase phase = turns_.phase_of(tenant);
  if (phase != Phase::leaving && phase != Phase::out) return found;
  // The tenant is not to blame if it waits for a submission on a node that cannot be reached.
  if (!gangs_.in_contact(tenant)) return found;
  auto others_want = answers_about<Gpu>([&](const Gpu& gpu) { return others_wait(gpu, tenant); });
  for (const Session* session : tenant.sessions) {
    if (!attached(session)) continue;
    const bool done = phase == Phase::leaving ? turns_.drain_confirmed(*session)
                                              : memory_.owed(*session, at[*session]) == Bytes{};
    const bool is_awaited = done ? keeps_out_others(*session, at, obstacles) : others_want(*session->gpu);
    if (is_awaited) found.push_back(session);
  }
  const auto keep_those = [&found](auto are_to_blame) {
    if (std::any_of(found.begin(), found.end(), are_to_blame))
      std::erase_if(found, [&](const Session* session) { return !are_to_blame(session); });
  };
  keep_those([this](const Session* session) { return !presence_.frozen(*session); });
  keep_those([&](const Session* session) { return keeps_out_others(*session, at, obstacles); });
  return found;
}

Overuse::Clock Overuse::clock_for(const Tenant& tenant, const Session& awaited, const Residencies& at,
                                  Obstacles& obstacles) const {
  if (presence_.frozen(awaited))
    return keeps_out_others(awaited, at, obstacles) ? Clock::runs : Clock::stands;
  if (at[awaited].phase == Phase::out) return Clock::evicts;
  const auto is_displaced = [&](const Session* session) {
    return attached(session) && memory_.displaced(*session, at[*session]);
  };
  if (std::any_of(tenant.sessions.begin(), tenant.sessions.end(), is_displaced)) return Clock::lacks;
  return memory_.needs_growth_to_drain(tenant, at) ? Clock::grows : Clock::runs;
}

// Returns true if the tenant waits. Tenants that ask for memory count as waiting, and so do tenants that had
// to leave for lack of room before their gates opened.
bool Overuse::waits(const Tenant& tenant) const {
  if (presence_.absent(tenant) || turns_.revoked(tenant)) return false;
  if (turns_.wants(tenant) && !turns_.leases().holds(tenant.id) && gangs_.possible(tenant)) return true;
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(), [this](const Session* session) {
    const SessionBook& book = memory_.of(*session);
    return attached(session) && !book.requests.empty() && book.lacks_room();
  });
}

bool Overuse::others_wait(const Gpu& gpu, const Tenant& tenant) const {
  return std::any_of(gpu.sessions.begin(), gpu.sessions.end(),
                     [&](const Session* other) { return other->tenant != &tenant && waits(*other->tenant); });
}

bool Overuse::others_wait(const Tenant& tenant) const {
  auto others_want = answers_about<Gpu>([&](const Gpu& gpu) { return others_wait(gpu, tenant); });
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(),
                     [&](const Session* session) { return attached(session) && others_want(*session->gpu); });
}

// Returns true if the memory of the session's stopped process leaves no room for a waiting tenant. False if
// enough memory is free, so that other tenants have their turns beside the stopped process, or if Slurm has
// suspended the process.
bool Overuse::keeps_out_others(const Session& stopped, const Residencies& at, Obstacles& obstacles) const {
  if (presence_.suspended(stopped) || memory_.kept_by_stop(stopped, at[stopped]) == Bytes{}) return false;
  auto known = obstacles.find(stopped.gpu);
  if (known == obstacles.end())
    known = obstacles.emplace(stopped.gpu, find_obstacles(*stopped.gpu, at)).first;
  return known->second.count(stopped.tenant) > 0;
}

// For each waiting tenant that lacks room, chooses tenants whose stopped processes hold memory, the largest
// first, until the waiting tenant would have room without this memory. Chooses none if it would lack room
// even without the memory of all stopped processes. Returns all chosen tenants.
std::set<const Tenant*> Overuse::find_obstacles(const Gpu& gpu, const Residencies& at) const {
  struct Part {
    Bytes needs;
    Bytes stays;  // memory that stays on the GPU even while other tenants run
    Bytes kept;   // the part of `stays` kept by stopped processes
  };
  std::map<const Tenant*, Part> parts;
  Bytes stays, kept;
  for (const Session* session : gpu.sessions) {
    Part& its = parts[session->tenant];
    its.needs += memory_.demand(*session, at[*session]);
    const Bytes its_part = memory_.unevictable(*session, at[*session], false);
    const Bytes its_kept =
        presence_.suspended(*session) ? Bytes{} : memory_.kept_by_stop(*session, at[*session]);
    its.stays += its_part;
    its.kept += its_kept;
    stays += its_part;
    kept += its_kept;
  }
  std::vector<std::pair<Bytes, const Tenant*>> by_size;
  for (const auto& [tenant, its] : parts)
    if (its.kept != Bytes{}) by_size.emplace_back(its.kept, tenant);
  std::sort(by_size.begin(), by_size.end(), [](const auto& one, const auto& other) {
    return one.first != other.first ? one.first > other.first : one.second->id < other.second->id;
  });
  std::set<const Tenant*> obstacles;
  for (const auto& [tenant, its] : parts) {
    Bytes lacks = minus(its.needs + stays - its.stays, memory_.usable_now(gpu));
    if (lacks == Bytes{} || lacks > kept - its.kept || !waits(*tenant)) continue;
    for (const auto& [size, other] : by_size) {
      if (other == tenant || lacks == Bytes{}) continue;
      obstacles.insert(other);
      lacks = minus(lacks, size);
    }
  }
  return obstacles;
}

void Overuse::respond(const Tenant& tenant, const std::vector<const Session*>& awaited, Row& its) {
  using Response = Overstay::Response;
  const OveruseRules& rules = *tuning_.overuse;
  const Nanoseconds now = effects_.now();
  const auto due_at = [&](Nanoseconds time) {
    return now + its.spare_in(its.clock) + std::max(time - its.lasted, Nanoseconds{});
  };
  const auto put = [&](const Gpu& gpu, Response response) {
    effects_.put(Overstay{.tenant = tenant.id,
                          .gpu = gpu.uuid,
                          .number = gpu.number,
                          .lasted = its.lasted,
                          .response = response,
                          .evicts = its.overdue->evicts,
                          .stopped = its.overdue->stopped});
  };
  if (due_at(rules.most) > now) {
    if (!its.noted && due_at(rules.notice) == now) {
      its.noted = true;
      put(*awaited.front()->gpu, Response::note);
    }
    if (!its.noted) effects_.wake_at(due_at(rules.notice));
    return effects_.wake_at(due_at(rules.most));
  }
  its.noted = true;
  for (const Session* session : awaited) {
    Nanoseconds& next = its.next_response[session->gpu->uuid];
    if (now >= next) {
      put(*session->gpu, rules.cancel ? Response::cancel : Response::warn);
      next = rules.cancel ? now + kUntilEnded : Nanoseconds::max();
    }
    effects_.wake_at(next);
  }
}

}  // namespace sharedgpu
