// SPDX-License-Identifier: Apache-2.0
// How much host memory evictions may need, told ahead of time: getting it takes longer than they do.
#include <algorithm>
#include <bit>
#include <utility>

#include "arbiter/core/actions.h"

namespace sharedgpu {
namespace {

// By so much the sessions of a tenant together take host memory at a time.
constexpr Bytes kSlab = mebibytes(128);
// Evictions are expected from when less than this part of a GPU is left.
constexpr std::uint64_t kLastPart = 8;

// Rounded up, so that not every session of a large job means a message to each of the others.
std::uint32_t sharers_of(const Tenant& tenant) {
  return static_cast<std::uint32_t>(std::bit_ceil(tenant.sessions.size()));
}

Bytes round_up(Bytes size, Bytes step) { return {(size.count + step.count - 1) / step.count * step.count}; }

}  // namespace

// At most all that the GPU lacks for everybody has to leave of one tenant: of its first sessions first, as
// evict() takes it. A little more is evicted for one that grows.
void Core::expect_evictions(Gpu& gpu) {
  Bytes demand;
  for (const Session* session : gpu.sessions)
    demand += std::max(demand_of(*session), promised(*session)) + session->settling + put_off(*session);
  const bool shared = std::any_of(gpu.sessions.begin(), gpu.sessions.end(), [&](const Session* session) {
    return session->tenant != gpu.sessions.front()->tenant;
  });
  const Bytes ahead = growth_ahead(gpu);
  const bool pressure = shared && demand + ahead > gpu.usable - Bytes{gpu.usable.count / kLastPart};
  const Bytes of_one = pressure ? std::max(minus(demand + ahead, gpu.usable), tuning_.evict_step) : Bytes{};
  for (const Session* session : gpu.sessions)
    session->tenant->to_leave = suspended(*session->tenant) ? Bytes{~0ull} : of_one;
  for (Session* session : gpu.sessions) {
    if (session->stopped) continue;  // others of its tenant leave in its stead
    const Bytes its = std::min(session->use.swappable, session->tenant->to_leave);
    // What has left already leaves in nobody's stead.
    const Bytes can_leave =
        session->stuck(now_) ? Bytes{} : std::min(session->allowed, session->use.resident);
    session->tenant->to_leave -= std::min(its, can_leave);
    tell_host(*session, its);
  }
}

// More is told at once, less only when it has been less for a while.
void Core::tell_host(Session& session, Bytes need) {
  const std::uint32_t sharers = sharers_of(*session.tenant);
  need = round_up(need, std::max(Bytes{kSlab.count / sharers}, mebibytes(2)));
  if (need >= session.told_host)
    session.less_host_since = {};
  else if (session.less_host_since == Nanoseconds{})
    session.less_host_since = now_;
  if (session.less_host_since != Nanoseconds{}) {
    const Nanoseconds due = session.less_host_since + tuning_.host_calm;
    wake_at(due);
    if (now_ < due)
      need = session.told_host;
    else
      session.less_host_since = {};
  }
  if (need == session.told_host && sharers <= session.told_sharers) return;
  session.told_host = need;
  session.told_sharers = sharers;
  send(session, Prepare{.host = need, .sharers = sharers});
}

}  // namespace sharedgpu
