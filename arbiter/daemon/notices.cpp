// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/notices.h"

#include <algorithm>

#include "arbiter/daemon/log.h"
#include "arbiter/daemon/wait_text.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::milliseconds kPause{500};

}  // namespace

void Notices::wake() {
  if (looks_ || its_.sessions.all().empty()) return;
  looks_ = true;
  timer_.expires_after(kPause);
  timer_.async_wait([this](const asio::error_code& error) {
    looks_ = false;
    if (error) return;
    look();
    wake();
  });
}

// Returns true if a tenant with sessions has not been sent its line yet. Otherwise look() takes no snapshot,
// because taking a snapshot is slow.
bool Notices::any_untold() const {
  const auto& all = its_.tenants.all();
  return std::any_of(all.begin(), all.end(),
                     [](const auto& each) { return each.second.sessions > 0 && !each.second.told_wait; });
}

void Notices::look() {
  const Nanoseconds after = its_.administration.settings().notice_after;
  if (after == Nanoseconds{} || !any_untold()) return;
  const Nanoseconds now = its_.system.now();
  const LeaseBook& leases = its_.core.core().leases();
  const Snapshot state = its_.core.core().snapshot();
  for (const Snapshot::Tenant& tenant : state.tenants) {
    const auto known = its_.tenants.all().find(tenant.id);
    if (known == its_.tenants.all().end() || known->second.told_wait) continue;
    const auto waited = wait_of(tenant, leases, now);
    if (!waited || *waited < after) continue;
    Client* client = listener(tenant);
    if (client == nullptr || its_.jobs.was_told_of_wait(tenant.id)) continue;
    const WaitView view{
        .state = state,
        .tenants = its_.tenants,
        .leases = leases,
        .viewer = its_.viewers.limit_for(known->second.account),
        .now = now,
        .queue = [&](const GpuUuid& gpu) { return its_.core.core().queue(gpu, now).waiting; }};
    Notice notice;
    describe_wait(view, tenant).copy(notice.text, sizeof notice.text - 1);
    log::debug(client->label() + ": is told: " + notice.text);
    client->send(notice);
  }
}

// Returns the session that prints the line: the tenant's first session that reads its messages and knows this
// type of message. Null if there is no such session.
Client* Notices::listener(const Snapshot::Tenant& tenant) const {
  for (const SessionId id : tenant.sessions) {
    const auto* entry = its_.sessions.find(id);
    if (entry != nullptr && entry->reads() && entry->client->connection().version() >= Notice::kSince)
      return entry->client.get();
  }
  return nullptr;
}

}  // namespace sharedgpu
