// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/host_claims.h"

#include <algorithm>
#include <string>
#include <utility>

#include "arbiter/daemon/host_room.h"
#include "config/quantities.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kPause = 500ms;  // between two checks
// After a shortage the library takes no host memory for a minute (HostPool::bar()); a refutation takes
// longer.
constexpr Nanoseconds kLong = 90s;
// A longer gap between checks counts only this much, because nothing was observed in it.
constexpr Nanoseconds kMostGap = 20s;
// Two checks that are this far apart belong to different shortages.
constexpr Nanoseconds kApart = 1h;
// A margin for slabs and handles in transit, and for the reserve that each process leaves to each other
// process (HostPool).
constexpr Bytes kInFlight = mebibytes(512);
constexpr Bytes kForEach = mebibytes(4);

}  // namespace

// Counts all of the tenant's processes, because they may take from the same room at the same time.
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
  const std::optional<Bytes> room = host_room(its_.system, client.peer().pid);
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

// Keeps the checks of a process that closes its connection and reconnects.
void HostClaims::forget_gone(const ProcessName& process) {
  if (its_.sessions.of(process).empty()) rows_.erase(process);
}

}  // namespace sharedgpu
