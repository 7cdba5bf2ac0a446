// SPDX-License-Identifier: Apache-2.0
// The admission of away memory (Usage::away): host memory in which a session keeps handles that the GPU has
// no room for. Away memory counts against the tenant's limits on host memory. It also counts against the
// tenant's limit on its footprint, although it is not a part of the footprint.
#include <algorithm>
#include <utility>

#include "arbiter/core/memory/memory_books.h"
#include "protocol/host_memory.h"

namespace sharedgpu {

bool MemoryBooks::may_grow_away(const Session& session) {
  return session.may_be_away && session.tenant->limits.oversize;
}

void MemoryBooks::ask_for_away(const Session& session, std::uint64_t request, const Residency& at,
                               bool recovering) {
  SessionBook& its = book(session);
  if (its.away_requests.size() >= kMostRequests) return effects_.drop(session, "too many requests at once");
  if (its.away_requests.empty()) its.away_requested_at = effects_.now();
  its.away_requests.push_back(request);
  its.away_unjudged = recovering;
  judge_away(session, at);
}

// Away memory needs no room on the GPU, so its growth is granted or refused at once. A request waits in two
// cases. During the recovery, other sessions may not have reported their memory. And the tenant's processes
// may still hold host memory for device memory that they have freed.
void MemoryBooks::judge_away(const Session& session, const Residency& at) {
  SessionBook& its = book(session);
  if (its.away_requests.empty() || its.away_unjudged) return;
  const Holding wanted{its.use, its.reported_away, its.uncharged};
  const Tenant& tenant = *session.tenant;
  bool granted = true;
  Bytes host_most;
  if (wanted.away > its.away) {
    Bytes all = wanted.away - its.away;
    for (const Session* other : session.gpu->sessions)
      if (other->tenant == session.tenant) all += of(*other).size() + unreported(*other);
    host_most = passed_host_limit(session, wanted);
    granted = may_grow_away(session) && host_most == Bytes{} &&
              (tenant.limits.footprint == Bytes{} || all <= tenant.limits.footprint);
    if (granted && waits_for_host(session, wanted)) {
      const Nanoseconds due = its.away_requested_at + tuning_.host_patience;
      if (effects_.now() < due) return effects_.wake_at(due);
      host_most = tenant.limits.host;
      granted = false;
    }
    if (granted) its.away = wanted.away;
  }
  const Bytes limit = at.drained ? std::min(its.resident_limit, its.use.resident) : its.resident_limit;
  for (const std::uint64_t request : std::exchange(its.away_requests, {})) {
    if (granted)
      effects_.send(session, Verdict{.request = request, .granted = 1, .allowed = limit});
    else
      refuse(session, request, host_most);
  }
}

Bytes MemoryBooks::away_on(const Gpu& gpu, const Tenant& tenant) const {
  Bytes sum;
  for (const Session* session : tenant.sessions)
    if (session->gpu == &gpu) sum += of(*session).away;
  return sum;
}

// The host memory beyond the GPU's capacity that the process `viewer` sees as memory of the GPU; nullopt: the
// process sees the GPU's memory alone. Memory on the GPU needs room on the host, too, for the time when it is
// evicted. So only the host memory beyond the capacity of the tenant's GPUs counts, in equal parts for each
// GPU.
std::optional<Bytes> MemoryBooks::away_shown(const Gpu& gpu, const Viewer& viewer) const {
  if (!viewer.oversize || viewer.tenant == nullptr) return std::nullopt;
  std::optional<Bytes> host = host_memory::stated(viewer.tenant->limits.host);
  for (const Session* session : viewer.tenant->sessions) {
    const SessionBook& its = of(*session);
    if (session->step == viewer.step)
      host = host_memory::lower(host, host_memory::stated(its.use.host_limit));
    host = host_memory::lower(host, host_memory::stated(its.job_host_limit));
  }
  if (!host) return std::nullopt;
  Bytes on_gpus;
  for (const Gpu* its : viewer.gpus) on_gpus += its->capacity;
  const bool placed = std::find(viewer.gpus.begin(), viewer.gpus.end(), &gpu) != viewer.gpus.end();
  return placed ? Bytes{minus(*host, on_gpus).count / viewer.gpus.size()} : minus(*host, gpu.capacity);
}

}  // namespace sharedgpu
