// SPDX-License-Identifier: Apache-2.0
// The tenants by number and by name. The core knows tenants by number only; the ledger records number and
// identity together, so that a tenant is the same one after a restart. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "arbiter/ledger/tenant_name.h"

namespace sharedgpu {

// A lost GPU on which the tenant was, and the GPU's fault.
struct GpuLoss {
  GpuUuid gpu;
  std::string fault;
};

struct TenantInfo {
  TenantId id;
  TenantName name;
  uid_t uid = 0;
  uid_t account = 0;  // the user to whom log lines about it are attributed; `uid` unless known otherwise
  JobOptions options;
  // The host memory that its units bring: what SwapPerUnit= stated when they came. Zero: it depends on the
  // GPU, or nothing has registered units. RegisterJob::kUnlimited: nothing is stated.
  Bytes brought;
  JobClass job_class;
  Bytes group_limit;        // of host memory, by the tenant's control group; zero: it has none
  std::uint32_t nodes = 1;  // of the job
  std::string
      coordinator;  // if the job has several nodes: the node whose arbiter coordinates the job's turns
  bool nodes_are_new = false;   // no earlier arbiter of this node knew the job's nodes
  std::vector<GpuLoss> losses;  // GPUs that were lost in this run, each once
  // A process of this run has said on standard error that an allocation was refused, and which option helps
  // (told_option) or that none helps (told_gpu).
  bool told_option = false;
  bool told_gpu = false;
  bool over = false;  // the job's run is over, and no step has come since
  unsigned sessions = 0;
  Nanoseconds last_seen{};  // when its last session ended
  Nanoseconds touched{};    // when anything was last reported of it
  bool anchored = false;    // the connection of the tenant's `sharedgpu run` is open
  bool kept =
      false;  // that connection was open to an earlier arbiter: the process at its other end counts instead

  bool spans_nodes() const { return nodes > 1; }
  std::string label() const { return label_of(name, id); }
  void note_loss(const GpuUuid& gpu, const std::string& fault);
};

class Tenants {
 public:
  // The tenant of that name, created if there is none. The reference is valid until forget().
  TenantInfo& get(const TenantName& name, uid_t uid);
  // Restores a tenant from the ledger.
  TenantInfo& restore(TenantId id, const TenantName& name, uid_t uid);
  TenantInfo* find(const TenantName& name);
  TenantInfo* find(TenantId id);
  const TenantInfo* find(const TenantName& name) const { return const_cast<Tenants*>(this)->find(name); }
  const TenantInfo* find(TenantId id) const { return const_cast<Tenants*>(this)->find(id); }
  // Returns the tenant's name for the log; the number if the tenant is forgotten.
  std::string label(TenantId id) const;
  void forget(TenantId id);

  // The highest number given so far, including the numbers of forgotten tenants: no number is given twice.
  TenantId last() const { return last_; }
  void skip_to(TenantId last) { last_ = std::max(last_, last); }

  const std::map<TenantId, TenantInfo>& all() const { return tenants_; }

 private:
  std::map<TenantId, TenantInfo> tenants_;
  std::map<TenantName, TenantId> names_;
  TenantId last_;
};

}  // namespace sharedgpu
