// SPDX-License-Identifier: Apache-2.0
// The times and sizes that the core's decisions depend on. The daemon sets `turns`, `overuse`,
// `first_surveys` and the values of NodeTuning, and uses the other defaults. Tests set other values.
#pragma once

#include <optional>

#include "arbiter/policy/turn_length.h"
#include "protocol/messages.h"

namespace sharedgpu {

// The times for which a tenant may keep others waiting after its lease was revoked, see scheduler/overuse.h.
struct OveruseRules {
  // The longest wait for an answer of a session that, by its own reports, has nothing on the GPU. A working
  // session answers within milliseconds, or slightly later on a busy host.
  Nanoseconds silence = std::chrono::seconds(2);
  // The core reports overuse when it has lasted for `notice`, and again when it exceeds `most`.
  Nanoseconds notice = std::chrono::seconds(10);
  Nanoseconds most = std::chrono::minutes(5);
  bool cancel = false;  // the daemon ends a tenant that exceeds `most`; otherwise the tenant is only reported
};

// The values of Tuning that a site may change while the arbiter runs.
struct NodeTuning {
  Nanoseconds idle_release{};
  Nanoseconds most_overuse{};
  bool cancel_overuse = false;
};

struct Tuning {
  TurnRules turns;
  // nullopt: the core reports no overuse, and gives up no session that does not answer.
  std::optional<OveruseRules> overuse = {};
  // If others wait, a tenant loses its lease when it has been idle for a time between idle_release and
  // idle_cap. After long pauses, a shorter time suffices, see scheduler/idleness.h.
  Nanoseconds idle_release = std::chrono::milliseconds(5);
  Nanoseconds idle_cap = std::chrono::seconds(1);
  // The longest recovery period after a restart: the core waits for the sessions in the ledger before it
  // promises any memory.
  Nanoseconds grace = std::chrono::seconds(2);
  // The time in which a session must carry out an order of the core, plus one second for each GiB that the
  // session has to move. If the session makes no progress in this time, the core stops waiting for the
  // session.
  Nanoseconds patience = std::chrono::seconds(10);
  // A session that may restore all of its memory has this time, plus one second per GiB, to become ready. If
  // the session takes longer, the core assumes that the GPU has less free memory than the memory accounting
  // shows, and lets other sessions evict more.
  Nanoseconds shortage = std::chrono::milliseconds(500);
  // If a session requests to pin memory in place while its turn ends, and the GPU lacks memory for that, the
  // request is refused after this time.
  Nanoseconds settle = kSettlePatience;
  // Growth that waits only for host memory to be returned is refused after this time. While the session's
  // turn ends, this time also replaces crowd_patience and first_surveys if it is shorter.
  Nanoseconds host_patience = std::chrono::seconds(3);
  // Growth that lacks room only because of processes without sessions is refused after this time. The time is
  // long, so that these processes can end and free their memory.
  Nanoseconds crowd_patience = std::chrono::minutes(1);
  // The longest wait for the first survey of a GPU after a recovery, after a GPU without sessions gets a
  // session, and after a survey did not contain the GPU. Growth that lacks room only because a survey is
  // still missing is refused after this time. Zero: there are no surveys.
  Nanoseconds first_surveys{};
  // A session that could not evict is asked again after this time.
  Nanoseconds stuck_retry = std::chrono::seconds(1);
  // While only some sessions of a tenant have drained, each drained session may submit once, as soon as the
  // gates have been closed for step_after. After each further pause of at least step_pause, the session may
  // submit once more.
  Nanoseconds step_after = std::chrono::milliseconds(100);
  Nanoseconds step_pause = std::chrono::milliseconds(2);
  // The time between two polls of a process whose answer is overdue.
  Nanoseconds look = std::chrono::milliseconds(250);
  // The time between two polls of a tenant that runs while others wait; each poll looks at one of its
  // processes.
  Nanoseconds look_in_turn = std::chrono::milliseconds(500);
  // A tenant whose processes are stopped loses its lease this long after the last moment at which it could
  // submit work. The tenant's work may still run after that time, since a stopped process cannot report the
  // end of its work.
  Nanoseconds stop_grace = std::chrono::seconds(1);
  // If Slurm has announced a tenant's suspension, and the tenant is not stopped within this time, the tenant
  // counts as resumed.
  Nanoseconds suspend_notice = std::chrono::seconds(30);
  // The least amount that other tenants evict for a growing tenant. Without this minimum, each small
  // allocation would need a message.
  Bytes evict_step = mebibytes(64);
  // If a footprint has not grown for this time, no further growth is expected, see memory/growth_forecast.h.
  Nanoseconds surge_pause = std::chrono::seconds(1);
  // If a job runs short of host memory, its tenant is recalled (scheduler.h): it preempts other tenants at
  // once, for at most this time. It may be recalled again only after a pause of the same length.
  Nanoseconds home_pause = std::chrono::seconds(30);
  // Sessions return host memory that has not been needed for this time.
  Nanoseconds host_calm = std::chrono::seconds(5);

  // Leaves `overuse` empty if it is empty.
  void set(const NodeTuning& node) {
    idle_release = node.idle_release;
    if (!overuse) return;
    overuse->most = node.most_overuse;
    overuse->cancel = node.cancel_overuse;
  }
};

// The device memory of a GPU that may be handed out while processes without sessions have the memory
// `unmanaged`. The first quarter of `reserve` is for such processes, so that a display or a monitoring
// program does not lower the result.
constexpr Bytes capacity_of(Bytes total, Bytes limit, Bytes reserve, Bytes unmanaged = {}) {
  Bytes kept = minus(minus(total, reserve), minus(unmanaged, Bytes{reserve.count / 4}));
  return limit < kept ? limit : kept;
}

}  // namespace sharedgpu
