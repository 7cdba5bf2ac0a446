// SPDX-License-Identifier: Apache-2.0
// The open leases, and the lease times of steps and tenants.
//
// Each lease belongs to one step of a tenant, on one GPU. A tenant's lease time on a GPU is the time in which
// at least one of its steps holds a lease on the GPU. The core uses this class at run time, and
// arbiter/ledger/ uses it to replay a ledger. Not thread-safe.
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
  // If set, it is unknown whether the lease is still held, and this is the last time at which it certainly
  // was held. The lease time counts only up to this time, until confirm() is called.
  std::optional<Nanoseconds> doubted = {};
};

class LeaseBook {
 public:
  // Opens a lease. Returns false and changes nothing if the lease is open already.
  bool grant(const LeaseKey& key, Epoch epoch, Nanoseconds at);
  // Closes a lease. Returns false and changes nothing if the lease is not open.
  bool release(const LeaseKey& key, Nanoseconds at);
  // Set and reset OpenLease::doubted. No effect if the lease is not open.
  void doubt(const LeaseKey& key, Nanoseconds held_at);
  void confirm(const LeaseKey& key);

  // Lease time up to `now`, summed over all GPUs.
  Nanoseconds of_step(StepName step, Nanoseconds now) const;
  Nanoseconds of_tenant(TenantId tenant, Nanoseconds now) const;
  std::vector<std::pair<StepName, Nanoseconds>> steps_of(TenantId tenant, Nanoseconds now) const;

  const std::map<LeaseKey, OpenLease>& open() const { return open_; }
  std::optional<OpenLease> open(const LeaseKey& key) const;
  bool holds(TenantId tenant) const;
  // Returns true if the step has held a lease, and its tenant was not forgotten since then.
  bool knows(StepName step) const { return steps_.count(step) != 0; }

  // The lease times that a checkpoint of the ledger records in addition to the open leases. `steps`: the time
  // of the closed leases of each step. `gpus`: the tenant's lease time on each GPU before its oldest open
  // lease on this GPU began; if no lease on the GPU is open, the tenant's whole lease time there.
  struct Closed {
    std::map<StepName, Nanoseconds> steps;
    std::map<GpuUuid, Nanoseconds> gpus;
  };
  Closed closed_of(TenantId tenant) const;
  void carry(TenantId tenant, StepName step, Nanoseconds time);
  void carry(TenantId tenant, const GpuUuid& gpu, Nanoseconds time);

  // Drops the times of the tenant and its steps. Call only if all leases of the tenant are closed.
  void forget(TenantId tenant);

 private:
  // The time in which at least one step of a tenant holds a lease on a GPU.
  struct Union {
    unsigned open = 0;
    Nanoseconds since{};
    Nanoseconds sum{};
  };
  Nanoseconds end_of(TenantId tenant, const GpuUuid& gpu, Nanoseconds now) const;

  std::map<LeaseKey, OpenLease> open_;
  std::map<StepName, Nanoseconds> steps_;                      // lease time of closed leases, by step
  std::map<std::pair<TenantId, StepName>, Nanoseconds> both_;  // lease time of closed leases, by tenant and
                                                               // step
  std::map<std::pair<TenantId, GpuUuid>, Union> tenants_;
};

}  // namespace sharedgpu
