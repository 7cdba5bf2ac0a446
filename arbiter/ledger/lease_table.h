// SPDX-License-Identifier: Apache-2.0
// The ledger as a reader wants it: who held which GPU, from when to when, by the clock on the wall.
//
// Pure; one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "arbiter/core/lease_book.h"
#include "arbiter/ledger/records.h"

namespace sharedgpu {

// One lease of one step, or what many of them come to.
struct LeaseRow {
  TenantId tenant;
  TenantName name;
  unsigned run = 0;  // of a job that was requeued: a later one has a higher number
  std::uint32_t uid = 0;
  std::optional<StepName> step;  // none: of the whole tenant
  GpuUuid gpu;
  std::uint64_t turns = 1;
  Nanoseconds held{};  // for so long
  // Since 1970, in UTC; since the host's boot where the ledger does not tell when that was.
  Nanoseconds first{};
  Nanoseconds last{};
  bool open = false;  // still held, as far as the ledger tells; `last` is its last record then
};

class LeaseTable {
 public:
  // Takes the ledger's records, oldest first.
  void add(const Record& record);

  // Every lease, in the order in which they began.
  std::vector<LeaseRow> leases() const;

 private:
  struct Named {
    TenantName name;
    std::uint32_t uid = 0;
    unsigned run = 0;
  };
  LeaseRow row(const LeaseKey& key, Nanoseconds from, Nanoseconds to) const;
  void end_boot();
  void grant(const LeaseKey& key, const OpenLease& lease);
  void close(const LeaseKey& key, Nanoseconds at);
  void end_untold();

  std::string boot_id_;
  Nanoseconds booted_{};  // since 1970
  Nanoseconds latest_{};
  std::map<TenantId, Named> tenants_;
  std::map<LeaseKey, OpenLease> open_;
  std::optional<std::set<LeaseKey>> told_;  // by the checkpoint that is being read: those that are open
  std::optional<Nanoseconds> lost_;         // the last record before some were lost
  std::vector<LeaseRow> closed_;
};

// What lies between the two times, without the rest. Leases only, not sums of them.
std::vector<LeaseRow> within(const std::vector<LeaseRow>& leases, Nanoseconds since, Nanoseconds until);
// A row for each step and GPU; `held` is the sum.
std::vector<LeaseRow> by_step(const std::vector<LeaseRow>& leases);
// A row for each tenant and GPU. Steps hold their tenant's lease side by side: `held` is the time in which
// any of them did, and a turn of several is one.
std::vector<LeaseRow> by_tenant(const std::vector<LeaseRow>& leases);

}  // namespace sharedgpu
