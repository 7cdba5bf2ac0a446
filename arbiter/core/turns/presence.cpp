// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/turns/presence.h"

#include <utility>

namespace sharedgpu {

void Presence::suspend(const Tenant& tenant, bool suspended) {
  TenantRow& its = tenants_[tenant];
  if (suspended && its.suspended) return;  // Slurm announces a suspension more than once
  its.suspended = suspended;
  its.suspended_until = suspended ? effects_.now() + tuning_.suspend_notice : Nanoseconds{};
}

void Presence::expect_end_of_suspension(const Tenant& tenant) const {
  effects_.wake_at(tenants_[tenant].suspended_until);
}

// If one process of a tenant is stopped, its other processes usually are stopped, too, so all are polled at
// once.
void Presence::freeze(const Session& session, bool suspended) {
  sessions_[session].suspended = suspended;
  if (!frozen(*session.tenant))
    for (const Session* other : session.tenant->sessions)
      if (other != &session) sessions_[*other].polled = effects_.now() - tuning_.look;
  set_frozen(session, true);
}

// Most sessions answer soon, so the first poll comes after a delay, and is rarely needed.
void Presence::poll(const Session& session, bool owes_answer) {
  Row& its = sessions_[session];
  if (!owes_answer) {
    its.polled = kNever;
    return;
  }
  if (its.polled == kNever) its.polled = effects_.now();
  if (effects_.now() - its.polled >= tuning_.look) {
    its.polled = effects_.now();
    effects_.put(Look{.session = session.id});
  }
  effects_.wake_at(its.polled + tuning_.look);
}

void Presence::poll_in_turn(const Tenant& tenant, const std::vector<const Session*>& sessions) {
  TenantRow& its = tenants_[tenant];
  if (sessions.empty()) {
    its.polled = kNever;
    return;
  }
  if (its.polled == kNever) its.polled = effects_.now();
  const auto next_after = [this](Nanoseconds time) {
    return (time / tuning_.look_in_turn + 1) * tuning_.look_in_turn;
  };
  if (effects_.now() >= next_after(its.polled)) {
    its.polled = effects_.now();
    effects_.put(Look{.session = sessions[its.in_turn++ % sessions.size()]->id});
  }
  effects_.wake_at(next_after(its.polled));
}

// Returns true if the session was frozen before the call.
bool Presence::set_frozen(const Session& session, bool frozen) {
  const bool before = std::exchange(sessions_[session].frozen, frozen);
  if (before != frozen) tenants_[*session.tenant].frozen += frozen ? 1 : -1u;
  return before;
}

}  // namespace sharedgpu
