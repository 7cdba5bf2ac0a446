// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/sighting.h"

#include <optional>
#include <set>
#include <variant>

#include "arbiter/core/core.h"

namespace sharedgpu {
namespace {

// The sessions and tenants that an event concerned.
struct Concerned {
  std::set<SessionId> sessions;
  std::set<TenantId> tenants;
};

template <class Body>
std::optional<SessionId> reporter_in(const From<Body>& report) {
  return report.session;
}
template <class Other>
std::optional<SessionId> reporter_in(const Other& /*event*/) {
  return std::nullopt;
}

// Returns true if the event concerns only the domains that are advanced because of it, and false if it
// concerns all domains. Call only for events that are not messages of sessions.
bool concerns_some(const Event& event) {
  return std::holds_alternative<TimerFired>(event) || std::holds_alternative<Surveyed>(event);
}

template <class Action>
void add(const Action& action, Concerned& concerned) {
  if constexpr (requires { action.session; })
    concerned.sessions.insert(action.session);
  else if constexpr (requires { action.tenant; })
    concerned.tenants.insert(action.tenant);
  else if constexpr (requires { action.key; })
    concerned.tenants.insert(action.key.tenant);
}

// Adds the tenants of the domains that were advanced because of the event. An event of one tenant may begin
// or end an entry or an eviction of another tenant, even if no action names the other tenant's sessions.
void add_advanced(const Model& model, Nanoseconds now, bool with_sessions, Concerned& concerned) {
  for (const Domain& domain : model.domains()) {
    if (domain.advanced != now) continue;
    for (const Tenant* tenant : domain.tenants) {
      concerned.tenants.insert(tenant->id);
      if (!with_sessions) continue;
      for (const Session* session : tenant->sessions) concerned.sessions.insert(session->id);
    }
  }
}

}  // namespace

Sighting::Session Core::sight_of(const Session& session) const {
  const SessionBook& its = memory_.of(session);
  const MemoryUse& use = its.use;
  const Bytes unreported = memory_.unreported(session);
  return {.id = session.id,
          .tenant = session.tenant->id,
          .step = session.step,
          .wants = turns_.wants(session),
          .footprint = its.size() + unreported,
          .resident = use.resident + minus(use.pinned, use.settling) + unreported};
}

Sighting::Tenant Core::sight_of(const Tenant& tenant) const {
  const bool holds = leases().holds(tenant.id);
  return {.id = tenant.id,
          .may_wait = !holds && !presence_.absent(tenant),
          .enters = turns_.phase_of(tenant) == Phase::entering,
          .evicts = to_evict(tenant.id) > Bytes{},
          .leaves = holds && turns_.phase_of(tenant) == Phase::leaving,
          .turn_ends = scheduler_.yielded_until(tenant)};
}

Sighting Core::sighting() const {
  Sighting all{.whole = true, .sessions = {}, .tenants = {}};
  all.sessions.reserve(model_.sessions().size());
  all.tenants.reserve(model_.tenants().size());
  for (const auto& [id, session] : model_.sessions()) all.sessions.push_back(sight_of(session));
  for (const auto& [id, tenant] : model_.tenants()) all.tenants.push_back(sight_of(tenant));
  return all;
}

Sighting Core::sighting(const Event& event, const Actions& actions) const {
  const auto reporter = std::visit([](const auto& what) { return reporter_in(what); }, event);
  if (!reporter && !concerns_some(event)) return sighting();
  Concerned concerned;
  if (reporter) concerned.sessions.insert(*reporter);
  add_advanced(model_, effects_.now(), !reporter, concerned);
  for (const Action& action : actions) std::visit([&](const auto& one) { add(one, concerned); }, action);
  Sighting some;
  for (const SessionId id : concerned.sessions)
    if (const Session* session = model_.find(id)) {
      some.sessions.push_back(sight_of(*session));
      concerned.tenants.insert(session->tenant->id);
    }
  for (const TenantId id : concerned.tenants)
    if (const Tenant* tenant = model_.find(id)) some.tenants.push_back(sight_of(*tenant));
  return some;
}

}  // namespace sharedgpu
