// SPDX-License-Identifier: Apache-2.0
// The tenants by number and by name. The core knows tenants by number only. The ledger records number and
// name together, so that a tenant keeps its number after a restart of the arbiter. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "arbiter/ledger/tenant_name.h"

namespace sharedgpu {

// A GPU that was lost while the tenant was on it, and the GPU's fault.
struct GpuLoss {
  GpuUuid gpu;
  std::string fault;
};

struct TenantInfo {
  TenantId id;
  TenantName name;
  uid_t uid = 0;
  // The user to whom log lines about the tenant are attributed: `uid`, or the user that runs the tenant's
  // rootless container if `uid` is a subordinate uid.
  uid_t account = 0;
  JobOptions options;
  // The host memory that the tenant's units add to the job's memory, as SwapPerUnit= stated it when the units
  // were registered. Zero: the size depends on the GPU, or no units were registered. RegisterJob::kUnlimited:
  // SwapPerUnit= states no size.
  Bytes brought;
  JobClass job_class;
  ArrayElement element;
  Bytes group_limit;        // host memory limit of the tenant's control group; zero: no such group
  std::uint32_t nodes = 1;  // number of the job's nodes
  std::string
      coordinator;  // the node whose arbiter coordinates the job's turns; empty if the job has only one node
  bool nodes_are_new = false;   // no earlier arbiter of this node knew the job's nodes
  std::vector<GpuLoss> losses;  // GPUs that were lost in this run, each once
  // A process of this run has printed a line about a refused allocation on standard error. The line named an
  // option that helps (told_option), or said that no option helps (told_gpu).
  bool told_option = false;
  bool told_gpu = false;
  bool told_wait = false;  // the user of this run was sent a line about its long wait
  bool over = false;       // the job's run is over, and no later step has come
  unsigned sessions = 0;
  Nanoseconds last_seen{};  // when a session of it last ended; zero: never in this run
  Nanoseconds touched{};    // time of the last registration, or of the last end of a process or run
  bool anchored = false;    // the tenant's command `sharedgpu run` is connected
  // An earlier arbiter has recorded holders of the tenant's placement. The tenant exists while one of these
  // processes is alive.
  bool kept = false;

  bool belongs_to(uid_t user) const { return uid == user || account == user; }
  bool spans_nodes() const { return nodes > 1; }
  std::string label() const { return label_of(name, id, element); }
  void note_loss(const GpuUuid& gpu, const std::string& fault);
};

class Tenants {
 public:
  // Returns the tenant of that name. Creates it if there is none. The reference is valid until forget().
  TenantInfo& get(const TenantName& name, uid_t uid);
  // Restores a tenant from the ledger.
  TenantInfo& restore(TenantId id, const TenantName& name, uid_t uid);
  TenantInfo* find(const TenantName& name);
  TenantInfo* find(TenantId id);
  const TenantInfo* find(const TenantName& name) const { return const_cast<Tenants*>(this)->find(name); }
  const TenantInfo* find(TenantId id) const { return const_cast<Tenants*>(this)->find(id); }
  // Returns the tenant's name for the log, or "tenant" and the number if the tenant is forgotten.
  std::string label(TenantId id) const;
  void forget(TenantId id);

  // The highest number assigned so far. Numbers of forgotten tenants are not assigned again.
  TenantId last() const { return last_; }
  void skip_to(TenantId last) { last_ = std::max(last_, last); }

  const std::map<TenantId, TenantInfo>& all() const { return tenants_; }

 private:
  std::map<TenantId, TenantInfo> tenants_;
  std::map<TenantName, TenantId> names_;
  TenantId last_;
};

}  // namespace sharedgpu
