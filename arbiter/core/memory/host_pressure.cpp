// SPDX-License-Identifier: Apache-2.0
// Tells sessions in advance how much host memory evictions may need, since allocating this memory takes
// longer than the eviction itself.
#include <algorithm>
#include <bit>

#include "arbiter/core/memory/memory_books.h"

namespace sharedgpu {
namespace {

// The sum of the pieces in which all sessions of a tenant allocate host memory, one piece for each session.
constexpr Bytes kSlab = mebibytes(128);
// Evictions are expected when less than 1 / kLastPart of the memory of a GPU is free.
constexpr std::uint64_t kLastPart = 8;

// Rounds up to a power of two, so that a new session of a large job rarely causes a message to each of its
// other sessions.
std::uint32_t sharers_of(const Tenant& tenant) {
  return static_cast<std::uint32_t>(std::bit_ceil(tenant.sessions.size()));
}

Bytes round_up(Bytes size, Bytes step) { return {(size.count + step.count - 1) / step.count * step.count}; }

}  // namespace

// A tenant has to evict at most the amount by which the memory of all tenants exceeds the GPU. The tenant's
// sessions evict in the order that MemoryBooks::evict() chooses. If tenants are growing, others evict
// slightly more than the growth needs.
void MemoryBooks::expect_evictions(const Gpu& gpu, const Residencies& all) {
  const auto deferred = [&](const Session& session) {
    return all[session].tenant_wants ? of(session).forecast.deferred() : Bytes{};
  };
  Bytes demanded;
  for (const Session* session : gpu.sessions) {
    const Residency& at = all[*session];
    demanded += std::max(demand(*session, at), promised(*session, at)) + of(*session).pin_request +
                deferred(*session);
  }
  const bool shared = std::any_of(gpu.sessions.begin(), gpu.sessions.end(), [&](const Session* session) {
    return session->tenant != gpu.sessions.front()->tenant;
  });
  const Bytes growth = expected_growth(gpu, all);
  const Bytes usable = usable_now(gpu);
  const bool pressure = shared && demanded + growth > usable - Bytes{usable.count / kLastPart};
  const Bytes of_one = pressure ? std::max(minus(demanded + growth, usable), tuning_.evict_step) : Bytes{};
  Table<Tenant, Bytes> to_leave;
  for (const Session* session : gpu.sessions)
    to_leave.begin(*session->tenant) = all[*session].suspending ? Bytes{~0ull} : of_one;
  for (const Session* session : gpu.sessions) {
    const Residency& at = all[*session];
    if (at.frozen) continue;  // the session is stopped; other sessions of its tenant evict instead
    const SessionBook& its = of(*session);
    Bytes& left = to_leave[*session->tenant];
    const Bytes share = std::min(its.use.swappable, left);
    // Only memory that this session can still evict reduces the amount that the other sessions may have to
    // evict.
    const Bytes can_leave = stuck(*session, at) ? Bytes{} : std::min(its.resident_limit, its.use.resident);
    left -= std::min(share, can_leave);
    prepare_host(*session, share);
  }
}

// Sends a larger amount to the session at once, and a smaller amount only if it has sufficed for a while.
void MemoryBooks::prepare_host(const Session& session, Bytes need) {
  SessionBook& its = book(session);
  const std::uint32_t sharers = sharers_of(*session.tenant);
  need = round_up(need, std::max(Bytes{kSlab.count / sharers}, mebibytes(2)));
  if (need >= its.prepared_host)
    its.less_host_since.reset();
  else if (!its.less_host_since)
    its.less_host_since = effects_.now();
  if (its.less_host_since) {
    const Nanoseconds due = *its.less_host_since + tuning_.host_calm;
    effects_.wake_at(due);
    if (effects_.now() < due)
      need = its.prepared_host;
    else
      its.less_host_since.reset();
  }
  if (need == its.prepared_host && sharers <= its.sharers) return;
  its.prepared_host = need;
  its.sharers = sharers;
  effects_.send(session, Prepare{.host = need, .sharers = sharers});
}

}  // namespace sharedgpu
