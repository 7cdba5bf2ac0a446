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
  ArrayElement element = {};
  unsigned run = 0;  // run of a requeued job; later runs have higher numbers
  std::uint32_t uid = 0;
  std::optional<StepName> step;  // nullopt: the whole tenant
  GpuUuid gpu;
  std::uint64_t turns = 1;
  Nanoseconds held{};
  // Begin and end of the lease: time since 1970 in UTC, or since the host's boot if the ledger does not
  // record the time of the boot.
  Nanoseconds first{};
  Nanoseconds last{};
  std::string lost = {};  // the fault of the GPU if the lease ended because the GPU was lost, else empty
  // the ledger does not have the end of the lease; `last` is then the time of the ledger's last record
  bool open = false;
  Bytes host = {};  // the highest host memory of the tenant's control group; zero: no group
};

class LeaseTable final : private LedgerVisitor {
 public:
  // Call for each record of the ledger, oldest first.
  void add(const Record& record) { reader_.read(record, *this); }

  // All leases, ordered by the times at which they began.
  std::vector<LeaseRow> leases() const;

  // The name and the user of a tenant, according to the records so far.
  struct Holder {
    TenantName name;
    ArrayElement element = {};
    std::uint32_t uid = 0;
    unsigned run = 0;  // how often the job was requeued
  };
  Holder holder(TenantId tenant) const;

 private:
  void on_boot(const BootRecord& boot, bool rebooted) override;
  void on_tenant(const TenantRecord& tenant, Nanoseconds at) override;
  void on_class(const ClassRecord& job) override;
  void on_begin(const BeginRecord& begin) override;
  void on_used(const UsedRecord& used, Nanoseconds at) override;
  void on_loss(const LossRecord& loss) override;
  void on_release(const LeaseKey& key, const OpenLease& lease, Nanoseconds at) override;
  LeaseRow row(const LeaseKey& key, Nanoseconds from, Nanoseconds to) const;

  LedgerReader reader_;
  Nanoseconds booted_{};  // since 1970
  std::map<TenantId, Holder> holders_;
  std::map<std::pair<TenantId, TenantName>, Bytes> hosts_;  // the highest host memory of each control group
  std::map<LeaseKey, std::string> losses_;  // for open leases on a GPU that was lost: the fault of the GPU
  std::vector<LeaseRow> closed_;
};

// Returns the parts of the leases that lie between the two times. `leases`: single leases, not the sums that
// by_step() and by_tenant() return.
std::vector<LeaseRow> within(const std::vector<LeaseRow>& leases, Nanoseconds since, Nanoseconds until);
// Returns a row for each step and GPU. `held` is the sum over the step's leases.
std::vector<LeaseRow> by_step(const std::vector<LeaseRow>& leases);
// Returns a row for each tenant and GPU. Steps hold their tenant's lease concurrently: `held` is the time in
// which any step held the GPU, and a turn of several steps counts once.
std::vector<LeaseRow> by_tenant(const std::vector<LeaseRow>& leases);

}  // namespace sharedgpu
