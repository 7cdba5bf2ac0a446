// SPDX-License-Identifier: Apache-2.0
// What a starting arbiter learns of its predecessor from the ledger.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "arbiter/core/recovered.h"
#include "arbiter/ledger/figure_book.h"
#include "arbiter/ledger/records.h"
#include "arbiter/ledger/tenants.h"

namespace sharedgpu {

// When the process was started, in clock ticks from the boot of the host; 0 where there is none.
using StartTimeOf = std::function<std::uint64_t(pid_t pid)>;

// Whether sessions of one process for these GPUs may be the same one. Zero: not attached, or not told.
inline bool may_be_same(const GpuUuid& a, const GpuUuid& b) {
  return a == b || a == GpuUuid{} || b == GpuUuid{};
}

class History {
 public:
  // Takes the ledger's records, oldest first.
  void add(const Record& record);

  // The records that tell a new history what is in this one: the beginning of the next file of the ledger.
  // What nobody will ask for is left out: placements that no living process was told of, and jobs that are
  // over, as far as can be told.
  std::vector<Record> checkpoint(StartTimeOf starts);

  // Everything is told: settles what this boot of the host, and the processes that live now, make of it.
  // Returns the records that are to be appended for it.
  std::vector<Record> finish(const BootRecord& boot, StartTimeOf starts, Nanoseconds now);

  struct PastSession {
    SessionId id;  // zero: it had none
    bool expected = false;
  };
  // The session of the predecessor that this process had for `gpu`, and no longer has after this call.
  PastSession take_session(std::uint32_t pid, std::uint64_t started, const GpuUuid& gpu);

  Tenants tenants;
  Recovered recovered;
  FigureBook figures;
  SessionId last_session;
  std::map<TenantId, std::set<ProcessName>> keepers;  // of the tenants, and placements in `recovered`

 private:
  struct Past {
    SessionRecord record;
    GpuUuid gpu;  // none: not attached
    bool attached() const { return gpu != GpuUuid{}; }
  };
  void end_boot();
  void grant(const LeaseRecord& lease, Nanoseconds at);
  std::set<TenantId> that_may_come() const;
  std::vector<TenantId> those_over() const;
  void keep_placements(StartTimeOf starts);

  BootRecord boot_;
  Nanoseconds last_{};
  std::optional<Nanoseconds> lost_;  // since then records may be missing
  std::map<SessionId, Past> sessions_;
  std::map<TenantId, Nanoseconds> touched_;  // when a tenant of this boot was last told of
};

}  // namespace sharedgpu
