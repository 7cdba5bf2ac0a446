// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/turns/presence.h"

#include <algorithm>

namespace sharedgpu {

void Presence::suspend(const Tenant& tenant, bool suspended) {
  suspended_until_[tenant] = suspended ? effects_.now() + tuning_.suspend_notice : Nanoseconds{};
}

// Most answers come before the first poll.
void Presence::poll(const Session& session, bool owes_answer) {
  if (suspending(*session.tenant)) effects_.wake_at(suspended_until_[*session.tenant]);
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

bool Presence::frozen(const Tenant& tenant) const {
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(),
                     [this](const Session* session) { return frozen(*session); });
}

}  // namespace sharedgpu
