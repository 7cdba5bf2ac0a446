// SPDX-License-Identifier: Apache-2.0
// The leases of a ledger as rows: which tenant and step held which GPU, from when to when, by the wall's
// clock.
//
// Pure; one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "arbiter/ledger/reader.h"
#include "arbiter/ledger/records.h"

namespace sharedgpu {

// One lease of one step, or the sum of several.
struct LeaseRow {
  TenantId tenant;
  TenantName name;
  unsigned run = 0;  // of a job that was requeued: a later one has a higher number
  std::uint32_t uid = 0;
  std::optional<StepName> step;  // none: of the whole tenant
  GpuUuid gpu;
  std::uint64_t turns = 1;
  Nanoseconds held{};
  // Since 1970, in UTC; since the host's boot where the ledger does not say when that was.
  Nanoseconds first{};
  Nanoseconds last{};
  std::string lost = {};  // why its GPU was lost, if the lease ended for that
  bool open = false;      // still held, as far as the ledger says; `last` is its last record then
};

class LeaseTable final : private LedgerVisitor {
 public:
  // Takes the ledger's records, oldest first.
  void add(const Record& record) { reader_.read(record, *this); }

  // Every lease, in the order in which they began.
  std::vector<LeaseRow> leases() const;

  // The tenant that has the number after the records so far.
  struct Holder {
    TenantName name;
    std::uint32_t uid = 0;
    unsigned run = 0;  // of a job: how often it was requeued
  };
  Holder holder(TenantId tenant) const;

 private:
  void on_boot(const BootRecord& boot, bool rebooted) override;
  void on_tenant(const TenantRecord& tenant, Nanoseconds at) override;
  void on_begin(const BeginRecord& begin) override;
  void on_loss(const LossRecord& loss) override;
  void on_release(const LeaseKey& key, const OpenLease& lease, Nanoseconds at) override;
  LeaseRow row(const LeaseKey& key, Nanoseconds from, Nanoseconds to) const;

  LedgerReader reader_;
  Nanoseconds booted_{};  // since 1970
  std::map<TenantId, Holder> holders_;
  std::map<LeaseKey, std::string> losses_;  // why leases that are open are about to end
  std::vector<LeaseRow> closed_;
};

// The parts of leases between the two times. Of leases only, not of their sums.
std::vector<LeaseRow> within(const std::vector<LeaseRow>& leases, Nanoseconds since, Nanoseconds until);
// A row for each step and GPU; `held` is the sum.
std::vector<LeaseRow> by_step(const std::vector<LeaseRow>& leases);
// A row for each tenant and GPU. Steps hold their tenant's lease side by side: `held` is the time in which
// any of them did, and a turn of several is one.
std::vector<LeaseRow> by_tenant(const std::vector<LeaseRow>& leases);

}  // namespace sharedgpu
