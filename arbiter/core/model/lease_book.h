// SPDX-License-Identifier: Apache-2.0
// Lease time: who held a lease on which GPU, from when to when.
//
// The unit is a step's lease on one GPU. A tenant's lease time on a GPU is the union of its steps' there. The
// same book is kept by the core while it runs and by the ledger while it is replayed. Not safe for concurrent
// use.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "protocol/messages.h"

namespace sharedgpu {

struct LeaseKey {
  TenantId tenant;
  GpuUuid gpu;
  StepName step;
  auto operator<=>(const LeaseKey&) const = default;
};

struct OpenLease {
  Epoch epoch;
  Nanoseconds since{};
  // The last time at which somebody had the lease for sure, if that is in doubt: the lease counts up to then
  // until it is confirmed.
  std::optional<Nanoseconds> doubted = {};
};

class LeaseBook {
 public:
  // A grant of a lease that is open already, and a release of one that is not, change nothing and return
  // false.
  bool grant(const LeaseKey& key, Epoch epoch, Nanoseconds at);
  bool release(const LeaseKey& key, Nanoseconds at);
  // For a lease that is open.
  void doubt(const LeaseKey& key, Nanoseconds held_at);
  void confirm(const LeaseKey& key);

  // Time held so far, on all GPUs, leases that are open at `now` included.
  Nanoseconds of_step(StepName step, Nanoseconds now) const;
  Nanoseconds of_tenant(TenantId tenant, Nanoseconds now) const;
  std::vector<std::pair<StepName, Nanoseconds>> steps_of(TenantId tenant, Nanoseconds now) const;

  const std::map<LeaseKey, OpenLease>& open() const { return open_; }
  std::optional<OpenLease> open(const LeaseKey& key) const;
  bool holds(TenantId tenant) const;
  // True if the step ever held a lease.
  bool knows(StepName step) const { return steps_.count(step) != 0; }

  // The times that a checkpoint of the ledger carries beside the leases that are open: the time of each step,
  // and that of the tenant on each GPU, without what lies after the begin of its oldest open lease there.
  struct Closed {
    std::map<StepName, Nanoseconds> steps;
    std::map<GpuUuid, Nanoseconds> gpus;
  };
  Closed closed_of(TenantId tenant) const;
  void carry(TenantId tenant, StepName step, Nanoseconds time);
  void carry(TenantId tenant, const GpuUuid& gpu, Nanoseconds time);

  // Drops what a tenant and its steps came to. Its leases must be closed.
  void forget(TenantId tenant);

 private:
  // The union of the steps' leases of one tenant on one GPU.
  struct Union {
    unsigned open = 0;
    Nanoseconds since{};
    Nanoseconds sum{};
  };
  Nanoseconds end_of(TenantId tenant, const GpuUuid& gpu, Nanoseconds now) const;

  std::map<LeaseKey, OpenLease> open_;
  std::map<StepName, Nanoseconds> steps_;                      // closed leases of each step
  std::map<std::pair<TenantId, StepName>, Nanoseconds> both_;  // the same by tenant, for its status
  std::map<std::pair<TenantId, GpuUuid>, Union> tenants_;
};

}  // namespace sharedgpu
