// SPDX-License-Identifier: Apache-2.0
// The recovery period after a restart: sessions that the ledger knows are waited for, so that no memory is
// promised twice. It ends when all of them have reported what they have, or with its time.
#pragma once

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
  // It is known what the session has, or it is gone.
  void settle(Session& session) {
    if (session.expected && expected_ > 0) --expected_;
    session.expected = false;
  }

 private:
  bool active_;
  Nanoseconds until_;
  unsigned expected_;
};

}  // namespace sharedgpu
