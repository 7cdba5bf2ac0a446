// SPDX-License-Identifier: Apache-2.0
// The figures of tenants and steps, except lease time.
//
// To add a figure (a metric of a tenant or a step):
//   1. Here: a field that only grows, or a maximum. figure_book.cpp computes it from sightings of the core,
//      or adds what sessions report (add()).
//   2. UsedRecord in records.h keeps it over restarts; the recipe there names tests and docs/ledger.md.
//   3. Show it in the status: the recipe in arbiter/daemon/status_text.h.
//   4. For sacct: a field of LeaseReply, shown by usage_poller.cpp and usage_writer.cpp of accounting/. For
//      AdminComment: a field of JobReply, shown by comment.h, comment.cpp and main.cpp of comment/. Both: the
//      field in protocol/messages.h, a row in protocol/versions.h, and its value in
//      arbiter/daemon/queries.cpp. Documentation of sacct: docs/slurm.md and docs/usage.md; of AdminComment:
//      docs/accounting.md.
//   5. Test it in tests/unit/arbiter/figures.cpp, in sacct in tests/unit/slurm/usage_writer_test.cpp, and in
//      AdminComment in comment_test.cpp there.
#pragma once

#include <compare>

#include "protocol/messages.h"

namespace sharedgpu {

// The totals of a tenant or of one of its steps, except lease time: on this node, over all GPUs and all
// processes, including ended ones.
struct Figures {
  Traffic moved = {};          // bytes copied: see Traffic
  Nanoseconds waited{};        // time with a thread waiting at the gate and no lease held
  Nanoseconds overuse{};       // time with closed gates and work still on the GPU
  std::uint64_t handoffs = 0;  // how often the lease was given up, to others or for idleness
  Bytes footprint = {};        // the maximum
  Bytes resident = {};         // the maximum
  unsigned backends = 0;       // backends that its sessions had, one bit each
  Bytes host = {};             // the maximum of host memory in its control group; zero: it has none
  auto operator<=>(const Figures&) const = default;
};

}  // namespace sharedgpu
