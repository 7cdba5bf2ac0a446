// SPDX-License-Identifier: Apache-2.0
// The times and sizes that the core decides by. The defaults are what the daemon uses, which adds the rules
// of overuse and the wait for surveys; tests set others.
#pragma once

#include <optional>

#include "arbiter/policy/turn_length.h"
#include "protocol/messages.h"

namespace sharedgpu {

// For how long a tenant may keep others waiting after its lease was revoked, see scheduler/overuse.h.
struct OveruseRules {
  // A session that says nothing, and has nothing on the GPU as far as the books know, is waited for no longer
  // than this: with nothing to wait for an answer takes milliseconds, or a moment longer on a busy host.
  Nanoseconds silence = std::chrono::seconds(2);
  // Overuse is told of when it has lasted for so long, and again when it exceeds the most.
  Nanoseconds notice = std::chrono::seconds(10);
  Nanoseconds most = std::chrono::minutes(5);
  bool cancel = false;  // a tenant that exceeds it is to be ended
};

struct Tuning {
  TurnRules turns;
  // None: a tenant that does not leave is waited for.
  std::optional<OveruseRules> overuse = {};
  // An idle tenant that others wait for keeps its lease for at least idle_release, and for at most idle_cap;
  // see scheduler/idleness.h.
  Nanoseconds idle_release = std::chrono::milliseconds(5);
  Nanoseconds idle_cap = std::chrono::seconds(1);
  // The recovery period after a restart: sessions that the ledger knows are waited for before any memory is
  // promised anew.
  Nanoseconds grace = std::chrono::seconds(2);
  // The timeout of a session that was asked to do something; a second for each GiB that it has to move comes
  // on top. A session that shows no progress for so long is planned around.
  Nanoseconds patience = std::chrono::seconds(10);
  // A session that may restore all of its memory, and is not ready after this and a second per GiB, finds
  // less device memory than the books say: others evict more for it.
  Nanoseconds shortage = std::chrono::milliseconds(500);
  // A request to pin memory in place is refused after this where its turn ends and no room can be made.
  Nanoseconds settle = kSettlePatience;
  // Growth that waits only for host memory to be given back is refused after this.
  Nanoseconds host_patience = std::chrono::seconds(3);
  // Growth for which there is no room beside memory of processes that are no sessions is refused after this:
  // somebody may end them.
  Nanoseconds crowd_patience = std::chrono::minutes(1);
  // After a recovery, and once the first session comes to a GPU, growth that only what no survey has shown
  // yet leaves no room for waits so long for the first surveys. Zero: there are none to wait for.
  Nanoseconds first_surveys{};
  // A session that could not evict is not asked again for so long.
  Nanoseconds stuck_retry = std::chrono::seconds(1);
  // If some sessions of a tenant have drained and others have not, a drained one may submit once this long
  // after the gates closed, and again after the pause, or a longer one.
  Nanoseconds step_after = std::chrono::milliseconds(100);
  Nanoseconds step_pause = std::chrono::milliseconds(2);
  // The time between two polls of the state of a process whose answer is overdue.
  Nanoseconds look = std::chrono::milliseconds(250);
  // The same for the processes of a tenant that runs while others wait, of which one at a time is polled.
  Nanoseconds look_in_turn = std::chrono::milliseconds(500);
  // A tenant of stopped processes loses its lease so long after it could last submit: what was submitted
  // goes on, and nobody can tell when it is done.
  Nanoseconds stop_grace = std::chrono::seconds(1);
  // A tenant announced as suspending but never stopped resumes after this.
  Nanoseconds suspend_notice = std::chrono::seconds(30);
  // The least to evict for a growing tenant, so that small allocations do not cost a message each.
  Bytes evict_step = mebibytes(64);
  // A footprint that has not grown for so long has paused, see memory/growth_forecast.h.
  Nanoseconds surge_pause = std::chrono::seconds(1);
  // A tenant whose host memory runs short preempts others at once, for so long at most, and not again before
  // as much has passed.
  Nanoseconds home_pause = std::chrono::seconds(30);
  // Sessions give host memory back when less has been enough for so long.
  Nanoseconds host_calm = std::chrono::seconds(5);
};

// The device memory of a GPU that may be handed out beside `unmanaged` memory of processes that are no
// sessions. A quarter of the reserve is theirs: a display or a monitor disturbs nobody.
constexpr Bytes capacity_of(Bytes total, Bytes limit, Bytes reserve, Bytes unmanaged = {}) {
  Bytes kept = minus(minus(total, reserve), minus(unmanaged, Bytes{reserve.count / 4}));
  return limit < kept ? limit : kept;
}

}  // namespace sharedgpu
