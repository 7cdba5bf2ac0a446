// SPDX-License-Identifier: Apache-2.0
// The figures of tenants and steps, except lease time.
//
// To add a figure (a metric of a tenant or a step):
//   1. Add a field to Figures: a value that only grows, or a maximum. FigureBook computes the value from the
//      state of the core (Sighting) in observe(), or from reports of sessions in add().
//   2. UsedRecord in records.h keeps the figure over restarts; the recipe in records.h names the tests and
//      docs/ledger.md.
//   3. Show the figure in the status by the recipe in arbiter/daemon/status_text.h.
//   4. To show the figure in sacct, add a field to LeaseReply, and show it in usage_poller.cpp and
//      usage_writer.cpp of accounting/. To show the figure in AdminComment, add a field to JobReply, and show
//      it in comment.h, comment.cpp and main.cpp of comment/. LeaseReply and JobReply are in
//      protocol/messages.h; a new field also needs a row in protocol/versions.h, and
//      arbiter/daemon/queries.cpp sets its value. Document sacct in docs/slurm.md and docs/usage.md, and
//      AdminComment in docs/accounting.md.
//   5. Test the figure in tests/unit/arbiter/ledger/figures.cpp, its value in sacct in
//      tests/unit/accounting/usage_writer.cpp, and its value in AdminComment in
//      tests/unit/comment/comment.cpp.
#pragma once

#include <compare>

#include "protocol/messages.h"

namespace sharedgpu {

// The totals of a tenant or of one of its steps, except lease time. They cover all GPUs of this node and all
// processes, including processes that have ended.
struct Figures {
  Traffic moved = {};     // bytes copied: see Traffic
  Nanoseconds waited{};   // time in which a thread waited at the gate for a lease that the tenant could get
  Nanoseconds overuse{};  // time in which gates were closed and work of the tenant was still on the GPU;
                          // after a turn that ended early, only the time after the turn's planned end
  std::uint64_t handoffs = 0;  // number of times that the tenant gave up its lease, because other tenants
                               // waited or because it was idle
  Bytes footprint = {};        // maximum over time
  Bytes resident = {};         // maximum over time
  unsigned backends = 0;       // bit N is set if a session has used the Backend with the value N
  Bytes host = {};             // the highest host memory of the tenant's control group; zero: no such group
  Nanoseconds entering{};      // time from the choice of the tenant for a turn until its gates opened. While
                               // a thread waits, `waited` contains this time, too
  Nanoseconds evicting{};      // time in which memory that the tenant was ordered to evict was still on the
                               // GPU
  Exchanges exchanges = {};    // the cost of away memory
  auto operator<=>(const Figures&) const = default;
};

}  // namespace sharedgpu
