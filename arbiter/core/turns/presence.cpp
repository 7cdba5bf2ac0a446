// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/turns/presence.h"

#include <utility>

namespace sharedgpu {

void Presence::suspend(const Tenant& tenant, bool suspended) {
  tenants_[tenant].suspended_until = suspended ? effects_.now() + tuning_.suspend_notice : Nanoseconds{};
}

// Most answers come before the first poll.
void Presence::poll(const Session& session, bool owes_answer) {
  if (suspending(*session.tenant)) effects_.wake_at(tenants_[*session.tenant].suspended_until);
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

// Returns what it was.
bool Presence::set_frozen(const Session& session, bool frozen) {
  const bool before = std::exchange(sessions_[session].frozen, frozen);
  if (before != frozen) tenants_[*session.tenant].frozen += frozen ? 1 : -1u;
  return before;
}

}  // namespace sharedgpu
