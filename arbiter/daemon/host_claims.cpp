// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/host_claims.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "config/quantities.h"
#include "protocol/host_memory.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kPause = 500ms;  // pause between two checks of a claim, or two reads of the limits
// Time for which checks must contradict a claim. This time is longer than the minute for which the interposer
// allocates no host memory after a shortage (HostPool::bar()).
constexpr Nanoseconds kLong = 90s;
// The arbiter observes nothing between two checks. So at most this much of the time between them counts as
// time for which checks contradict a claim.
constexpr Nanoseconds kMostGap = 20s;
// Two checks that are this far apart belong to different shortages.
constexpr Nanoseconds kApart = 1h;
// Margins of a check: kInFlight for host memory that is being allocated or freed, and kForEach for the
// reserve that each process leaves to every other process (HostPool).
constexpr Bytes kInFlight = mebibytes(512);
constexpr Bytes kForEach = mebibytes(4);
constexpr Nanoseconds kCheckPause = 2s;  // pause between two checks of the host memory that a process holds
constexpr Nanoseconds kProven = 10s;     // a report is refuted if all checks in this time contradict it

// Tolerates a difference, because the interposer reports host memory before it allocates the memory, and
// reports freed memory a moment late.
bool is_more(Bytes reported, Bytes known) { return reported > known + Bytes{known.count / 8} + kInFlight; }

void lower(Bytes& limit, Bytes other) {
  limit = host_memory::lower(host_memory::stated(limit), host_memory::stated(other)).value_or(Bytes{});
}

Bytes sum(const std::map<SessionId, Bytes>& reported) {
  Bytes sum;
  for (const auto& [session, bytes] : reported) sum += bytes;
  return sum;
}

}  // namespace

// Counts all of the tenant's sessions, because their processes may allocate from the same free memory at the
// same time.
Bytes HostClaims::needed(const Client& client) const {
  const TenantInfo* tenant = its_.tenants.find(client.tenant());
  const std::uint64_t sessions = tenant == nullptr ? 1 : tenant->sessions;
  const Bytes evicts = its_.core.core().to_evict(client.tenant());
  return evicts + Bytes{evicts.count / 8} + kInFlight + Bytes{kForEach.count * sessions};
}

HostClaims::Row& HostClaims::look(const Client& client) {
  const Nanoseconds now = its_.system.now();
  Row& its = rows_[client.peer().process()];
  const Nanoseconds gap = its.looked ? now - *its.looked : Nanoseconds::max();
  if (gap < kPause) return its;
  its.looked = now;
  const bool had_room = std::exchange(its.room, std::nullopt).has_value();
  const Bytes away = its_.core.core().away(client.tenant());
  const std::optional<Bytes> room = host_room(its_.system, client.peer().pid, away);
  if (room && *room > needed(client)) its.room = room;
  its.told = its.told && its.room;
  its.roomy = its.room && had_room && gap < kApart ? its.roomy + std::min(gap, kMostGap) : Nanoseconds{};
  return its;
}

bool HostClaims::judge(const Client& client, Row& its, bool refuted) const {
  if (refuted && !std::exchange(its.told, true))
    its_.complaints.add(client.peer().account, Cause::host_claim,
                        client.label() + ", uid " + std::to_string(client.peer().uid) +
                            ": says that it has no host memory, though " + format_size(*its.room) +
                            " are free for its job; it is not believed");
  return !refuted;
}

bool HostClaims::believes_stuck(const Client& client) {
  Row& its = look(client);
  return judge(client, its, its.roomy >= kLong);
}

bool HostClaims::believes_short(const Client& client) {
  Row& its = look(client);
  return judge(client, its, its.room.has_value());
}

std::optional<Bytes> HostClaims::refuted(const ProcessName& process) const {
  const auto found = rows_.find(process);
  if (found == rows_.end() || found->second.roomy < kLong) return std::nullopt;
  const bool is_old = its_.system.now() - *found->second.looked > kMostGap;
  return is_old ? std::nullopt : found->second.room;
}

void HostClaims::read_limits(const Client& client, Held& its) {
  const Nanoseconds now = its_.system.now();
  if (its.limits_read && now - *its.limits_read < kPause) return;
  its.limits_read = now;
  its.most = host_most(its_.system, client.peer().pid);
}

void HostClaims::bound(const Client& client, Usage& usage) {
  bound(client, usage.use);
  const auto its = held_.find(client.peer().process());
  if (its != held_.end() && its->second.most) lower(usage.job_host_limit, its->second.most->of_job);
}

void HostClaims::bound(const Client& client, MemoryUse& use) {
  if (its_.sessions.find(client.session()) == nullptr) return;
  Held& its = held_[client.peer().process()];
  read_limits(client, its);
  if (its.most) lower(use.host_limit, its.most->of_step);
  its.reported[client.session()] = use.host;
  check_held(client, its);
  if (its.exceeds >= kProven) use.host = std::min(use.host, its.holds);
}

void HostClaims::check_held(const Client& client, Held& its) {
  const Nanoseconds now = its_.system.now();
  const Nanoseconds gap = its.checked ? now - *its.checked : Nanoseconds::max();
  if (gap < kCheckPause) return;
  const bool before = its.checked && its.exceeds_now;
  its.checked = now;
  its.exceeds_now = exceeds(client, its);
  its.exceeds = its.exceeds_now && before ? its.exceeds + std::min(gap, 2 * kCheckPause) : Nanoseconds{};
  if (its.exceeds < kProven || std::exchange(its.told, true)) return;
  its_.complaints.add(client.peer().account, Cause::host_claim,
                      client.label() + ", uid " + std::to_string(client.peer().uid) + ": reports " +
                          format_size(sum(its.reported)) + " of host memory for swap, but holds " +
                          format_size(its.holds) + " at most; the arbiter counts only this");
}

// Also updates its.holds and its.group.
bool HostClaims::exceeds(const Client& client, Held& its) const {
  const Bytes reported = sum(its.reported);
  const auto session = its_.core.core().session(client.session());
  if (!is_more(reported, {}) || !session || session->backend == Backend::managed) return false;
  const std::optional<HostCharge> charge = host_charge(its_.system, client.peer().pid);
  if (!charge) return false;
  its.group = charge->group;
  its.holds = charge->of_process;
  if (!is_more(reported, charge->of_process)) return false;
  Bytes of_group;
  for (const auto& [process, other] : held_)
    if (other.group == its.group) of_group += sum(other.reported);
  return is_more(of_group, charge->of_group);
}

Bytes HostClaims::excess(const ProcessName& process) const {
  const auto found = held_.find(process);
  return found == held_.end() || found->second.exceeds < kProven
             ? Bytes{}
             : minus(sum(found->second.reported), found->second.holds);
}

// Keeps the checks of a process that has another session, for example because it has reconnected.
void HostClaims::forget_gone(const ProcessName& process) {
  const std::set<SessionId> left = its_.sessions.of(process);
  const auto held = held_.find(process);
  if (held != held_.end())
    std::erase_if(held->second.reported, [&](const auto& entry) { return left.count(entry.first) == 0; });
  if (!left.empty()) return;
  rows_.erase(process);
  if (held != held_.end()) held_.erase(held);
}

}  // namespace sharedgpu
