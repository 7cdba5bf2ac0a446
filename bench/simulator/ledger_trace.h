// SPDX-License-Identifier: Apache-2.0
// Converts a ledger to a trace of the demand for each GPU, as far as the ledger shows the demand. The trace
// can be simulated under another policy.
//
// For each GPU on which a tenant held leases, the tenant becomes a program, whose bursts are the leases. The
// program arrives at the time at which the tenant began to wait for its first lease. The gap between two
// leases consists of a pause and a wait. The ledger has only the sum of all waits of a tenant. So the waits
// are removed by shortening all gaps of the tenant by the same factor.
//
// The ledger does not record everything, so the trace makes five assumptions. A GPU was busy for the whole of
// each lease. A turn that ended because other tenants waited was a separate burst; the shortened gap after it
// was a pause. A tenant had its highest footprint all the time, and an equal part of it on each of its GPUs.
// The programs of a tenant's GPUs do not wait for each other. Kernels have the simulator's default length.
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
  // Adds a record. Must be called for all records of the ledger, oldest first.
  void add(const Record& record);
  // Reads all files of the ledger at `path`, oldest first, and adds the number of damaged lines to
  // `damaged`.
  Status read(const std::string& path, unsigned& damaged);

  struct Replay {
    std::vector<std::vector<Program>> gpus;  // the programs of each GPU; time 0 is the arrival of the first
                                             // program
    std::vector<GpuUuid> names;
    unsigned unsized = 0;  // number of programs without a recorded footprint, which are assumed to fill the
                           // GPU
  };
  // `memory`: the memory of each GPU.
  Replay replay(Bytes memory) const;

 private:
  struct Summary {
    Claims claims;
    Bytes footprint;
    Nanoseconds waited{};         // sum of the waits since the beginning of the ledger
    Nanoseconds waited_before{};  // sum of the waits before the beginning of the ledger, from the first
                                  // checkpoint
    Nanoseconds waited_first{};   // the part of `waited` before the first lease
    bool first_known = false;     // true if `waited_first` is complete
    unsigned turns = 0;
    std::set<std::pair<GpuUuid, StepName>> held = {};
  };
  // One run of a tenant. A requeued job keeps its TenantId, but each of its runs is a separate program.
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
  bool sums_ = false;  // true while reading the checkpoint at the beginning of the ledger
  std::map<Who, Summary> summaries_;
};

}  // namespace sharedgpu
