// SPDX-License-Identifier: Apache-2.0
// The leases of a ledger as rows: the tenant and step that held a GPU, and when, in wall-clock time.
//
// Pure; not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "arbiter/ledger/reader.h"
#include "arbiter/ledger/records.h"

namespace sharedgpu {

// One lease of one step, or the sum of several.
struct LeaseRow {
  TenantId tenant;
  TenantName name;
  unsigned run = 0;  // run of a requeued job: a later run has a higher number
  std::uint32_t uid = 0;
  std::optional<StepName> step;  // none: the whole tenant
  GpuUuid gpu;
  std::uint64_t turns = 1;
  Nanoseconds held{};
  // Time since 1970, in UTC; or since the host's boot, if the ledger does not record the time of the boot.
  Nanoseconds first{};
  Nanoseconds last{};
  std::string lost = {};  // fault of its GPU, if the lease ended because the GPU was lost
  bool open = false;      // still held, according to the ledger; `last` is then its last record
  Bytes host = {};        // the highest host memory of the tenant's control group; zero: it has none
};

class LeaseTable final : private LedgerVisitor {
 public:
  // Takes the ledger's records, oldest first.
  void add(const Record& record) { reader_.read(record, *this); }

  // All leases, in the order of their begins.
  std::vector<LeaseRow> leases() const;

  // Returns the tenant that has this number, according to the records so far.
  struct Holder {
    TenantName name;
    std::uint32_t uid = 0;
    unsigned run = 0;  // how often a job was requeued
  };
  Holder holder(TenantId tenant) const;

 private:
  void on_boot(const BootRecord& boot, bool rebooted) override;
  void on_tenant(const TenantRecord& tenant, Nanoseconds at) override;
  void on_begin(const BeginRecord& begin) override;
  void on_used(const UsedRecord& used, Nanoseconds at) override;
  void on_loss(const LossRecord& loss) override;
  void on_release(const LeaseKey& key, const OpenLease& lease, Nanoseconds at) override;
  LeaseRow row(const LeaseKey& key, Nanoseconds from, Nanoseconds to) const;

  LedgerReader reader_;
  Nanoseconds booted_{};  // since 1970
  std::map<TenantId, Holder> holders_;
  std::map<std::pair<TenantId, TenantName>, Bytes> hosts_;  // the highest use of each control group
  std::map<LeaseKey, std::string> losses_;  // faults of GPUs because of which open leases are about to end
  std::vector<LeaseRow> closed_;
};

// Returns the parts of leases between the two times. Call it with leases only, not with sums.
std::vector<LeaseRow> within(const std::vector<LeaseRow>& leases, Nanoseconds since, Nanoseconds until);
// A row for each step and GPU; `held` is the sum.
std::vector<LeaseRow> by_step(const std::vector<LeaseRow>& leases);
// A row for each tenant and GPU. Steps hold their tenant's lease concurrently: `held` is the time in which
// any step held it, and a turn of several steps counts once.
std::vector<LeaseRow> by_tenant(const std::vector<LeaseRow>& leases);

}  // namespace sharedgpu
