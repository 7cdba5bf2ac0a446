// SPDX-License-Identifier: Apache-2.0
// The recovery period after a restart. The core waits for the sessions in the ledger, so that no memory is
// promised twice. The period ends when settle() was called for each of these sessions, or at a timeout. Not
// thread-safe.
#pragma once

#include <set>

#include "arbiter/core/model/model.h"
#include "arbiter/core/model/tuning.h"
#include "arbiter/core/recovered.h"

namespace sharedgpu {

class Recovery {
 public:
  Recovery(const Tuning& tuning, const Recovered& recovered, Nanoseconds now)
      : active_(!recovered.leases.open().empty() || recovered.expected_sessions > 0),
        until_(now + tuning.grace),
        expected_(recovered.expected_sessions) {}

  bool active() const { return active_; }
  Nanoseconds until() const { return until_; }
  bool over(Nanoseconds now) const { return active_ && (now >= until_ || expected_ == 0); }
  void end() { active_ = false; }
  // Call when a session that is in the ledger has reconnected. The recovery period then lasts at least until
  // settle() is called for this session, or until the timeout.
  void expect(SessionId session) { awaited_.insert(session); }
  // Call when `heir`, a new connection of the same process, replaces the session `from`.
  void hand_over(SessionId from, SessionId heir) {
    if (awaited_.erase(from) > 0) awaited_.insert(heir);
  }
  // Call when the session has ended, has drained, or has reported its memory while its lease continues.
  void settle(SessionId session) {
    if (awaited_.erase(session) > 0 && expected_ > 0) --expected_;
  }

 private:
  bool active_;
  Nanoseconds until_;
  unsigned expected_;            // number of sessions that are not settled (settle()), reconnected or not
  std::set<SessionId> awaited_;  // sessions that have reconnected and are not settled
};

}  // namespace sharedgpu
