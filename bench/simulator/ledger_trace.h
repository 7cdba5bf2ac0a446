// SPDX-License-Identifier: Apache-2.0
// A ledger as a trace: the demand for each GPU, as far as the ledger has it, to be served anew under another
// policy.
//
// Each tenant that held leases on a GPU becomes a program there: its leases are its bursts. It comes when it
// began to wait for the first of them. The gap between two leases is part pause, part wait; the ledger has
// only the sum of all waits of the tenant, so all its gaps are shortened by the same factor. The ledger does
// not have everything, and the trace assumes:
// - a GPU that was idle within a lease was at work;
// - a turn that others ended was a burst of its own, and a short pause followed;
// - the highest footprint was there all the time, for a tenant with several GPUs in equal parts;
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
#include "arbiter/ledger/reader.h"
#include "bench/simulator/stage.h"
#include "protocol/status.h"

namespace sharedgpu {

class LedgerTrace final : private LedgerVisitor {
 public:
  // Takes the ledger's records, oldest first.
  void add(const Record& record);
  // Takes all files of the ledger at `path`, oldest first, and adds the number of damaged lines to `damaged`.
  Status read(const std::string& path, unsigned& damaged);

  struct Replay {
    std::vector<std::vector<Program>> gpus;  // the programs of each, which begin when the ledger does
    std::vector<GpuUuid> names;
    unsigned unsized = 0;  // programs without a recorded footprint: they are taken to fill the GPU
  };
  // `memory`: of each GPU.
  Replay replay(Bytes memory) const;

 private:
  struct Summary {
    Claims claims;
    Bytes footprint;
    Nanoseconds waited{};         // without what the ledger has only the sum of
    Nanoseconds waited_before{};  // that sum
    Nanoseconds waited_first{};   // of `waited`, for its first lease
    bool first_known = false;     // that is all of it
    unsigned turns = 0;
    std::set<std::pair<GpuUuid, StepName>> held = {};
  };
  // Numbers are given out anew, and runs of a job count apart.
  using Who = std::tuple<TenantId, TenantName, unsigned>;
  Summary& summary_of(TenantId tenant);

  void on_options(const OptionsRecord& options, Nanoseconds at) override;
  void on_grant(const LeaseKey& key, const OpenLease& lease) override;
  void on_release(const LeaseKey& key, const OpenLease& lease, Nanoseconds at) override;
  void on_used(const UsedRecord& used, Nanoseconds at) override;
  void on_checkpoint(const CheckpointRecord& checkpoint) override;
  void on_complete() override { sums_ = false; }

  LedgerReader reader_;
  LeaseTable table_;
  bool sums_ = false;  // the checkpoint that the ledger begins with is being read
  std::map<Who, Summary> summaries_;
};

}  // namespace sharedgpu
