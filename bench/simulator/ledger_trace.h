// SPDX-License-Identifier: Apache-2.0
// A ledger as a trace: what was asked of each GPU, as far as the ledger tells, to be given out anew under
// another policy.
//
// Each tenant that held leases on a GPU becomes a program there: its leases are its bursts. It comes when it
// began to wait for the first of them. Between two of them lies what it did not want and what it waited for;
// of that the ledger tells the sum over the tenant's life, so all its gaps are shortened by the same factor.
// What is not told, and taken for something else:
// - that the GPU was idle within a lease counts as work;
// - a turn that others ended counts as a burst of its own, and what followed as a short pause;
// - the highest footprint counts all the time, and of a tenant with several GPUs in equal parts;
// - a tenant's GPUs are programs of their own, that do not wait for each other;
// - kernels are as short as the simulator has them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arbiter/ledger/lease_table.h"
#include "bench/simulator/stage.h"
#include "protocol/status.h"

namespace sharedgpu {

class LedgerTrace {
 public:
  // Takes the ledger's records, oldest first.
  void add(const Record& record);
  // Takes all files of the ledger at `path`, the older ones that it was rotated into first. Counts lines that
  // are damaged.
  Status read(const std::string& path, unsigned& damaged);

  struct Replay {
    std::vector<std::vector<Program>> gpus;  // the programs of each, which begin when the ledger does
    std::vector<GpuUuid> names;
    unsigned unsized = 0;  // programs without a recorded footprint: they are taken to fill the GPU
  };
  // `memory`: of each GPU.
  Replay replay(Bytes memory) const;

 private:
  struct Told {
    Claims claims;
    Bytes footprint;
    Nanoseconds waited{};         // without what the ledger has only the sum of
    Nanoseconds waited_untold{};  // that sum
    Nanoseconds waited_first{};   // of `waited`, for its first lease
    bool first_known = false;     // that is all of it
    unsigned turns = 0;
    std::set<std::pair<GpuUuid, StepName>> held = {};
  };
  // Numbers are given out anew, and runs of a job count apart.
  using Who = std::tuple<TenantId, TenantName, unsigned>;
  Told& told_of(TenantId tenant);

  LeaseTable table_;
  bool sums_ = false;  // the checkpoint that the ledger begins with is being read
  std::map<TenantId, std::pair<TenantName, unsigned>> who_;  // has the number now
  std::map<Who, Told> told_;
};

}  // namespace sharedgpu
