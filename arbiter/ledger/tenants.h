// SPDX-License-Identifier: Apache-2.0
// The tenants by number and by name. The core knows tenants by number only; the ledger keeps number and
// identity together, so that a tenant is the same one after a restart. One thread at a time.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "arbiter/ledger/tenant_name.h"

namespace sharedgpu {

// A GPU that a tenant was on when it was lost, and why it was.
struct GpuLoss {
  GpuUuid gpu;
  std::string fault;
};

struct TenantInfo {
  TenantId id;
  TenantName name;
  uid_t uid = 0;
  uid_t account = 0;  // the user on whom lines in the log about it count; the same unless known otherwise
  JobOptions options;
  JobClass job_class;
  std::uint32_t nodes = 1;      // of the job
  std::string coordinator;      // of several nodes, the one whose arbiter coordinates the job's turns
  bool nodes_are_new = false;   // no earlier arbiter of this node knew them
  std::vector<GpuLoss> losses;  // of its run; each GPU once
  bool over = false;            // its run is, and no step has come since
  unsigned sessions = 0;
  Nanoseconds last_seen{};  // when its last session ended
  Nanoseconds touched{};    // when anything was heard of it last
  bool anchored = false;    // the connection of its `sharedgpu run` is open
  bool kept = false;        // it was open to an arbiter before: the process that had it counts instead

  bool spans_nodes() const { return nodes > 1; }
  std::string label() const { return label_of(name, id); }
  void note_loss(const GpuUuid& gpu, const std::string& fault);
};

class Tenants {
 public:
  // The tenant of that name, made if there is none. The reference stays good until forget().
  TenantInfo& get(const TenantName& name, uid_t uid);
  // Sets a tenant as the ledger has it.
  TenantInfo& restore(TenantId id, const TenantName& name, uid_t uid);
  TenantInfo* find(const TenantName& name);
  TenantInfo* find(TenantId id);
  const TenantInfo* find(const TenantName& name) const { return const_cast<Tenants*>(this)->find(name); }
  const TenantInfo* find(TenantId id) const { return const_cast<Tenants*>(this)->find(id); }
  // For the log; of one that is forgotten its number.
  std::string label(TenantId id) const;
  void forget(TenantId id);

  // The highest number that was given, also to one that is forgotten: none is given twice.
  TenantId last() const { return last_; }
  void skip_to(TenantId last) { last_ = std::max(last_, last); }

  const std::map<TenantId, TenantInfo>& all() const { return tenants_; }

 private:
  std::map<TenantId, TenantInfo> tenants_;
  std::map<TenantName, TenantId> names_;
  TenantId last_;
};

}  // namespace sharedgpu
