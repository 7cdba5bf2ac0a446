// SPDX-License-Identifier: Apache-2.0
// Who the tenants are: Slurm jobs, runs of `sharedgpu run`, and processes on their own.
//
// The core knows tenants by number only; the ledger keeps number and identity together, so that a tenant is
// the same one after a restart. One thread at a time.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <map>
#include <string>

#include "protocol/messages.h"

namespace sharedgpu {

// What makes a tenant the same one. Exactly one of the three is set.
struct TenantName {
  std::uint32_t job = 0;
  RunToken run;
  struct Process {
    std::uint32_t pid = 0;
    std::uint64_t started = 0;
    auto operator<=>(const Process&) const = default;
  } process;
  auto operator<=>(const TenantName&) const = default;

  bool is_job() const { return job != 0; }
  bool is_run() const { return run != RunToken{}; }
};

// "job 1234", "run 7", "process 4711".
std::string label_of(const TenantName& name, TenantId id);

struct TenantInfo {
  TenantId id;
  TenantName name;
  uid_t uid = 0;
  JobOptions options;
  JobClass job_class;
  bool over = false;  // its run, and no step has come since
  unsigned sessions = 0;
  Nanoseconds last_seen{};  // when its last session ended
  bool anchored = false;    // the connection of its `sharedgpu run` is open
  bool kept = false;        // that was to an arbiter before: instead, the process counts that had it

  std::string label() const { return label_of(name, id); }
};

class Tenants {
 public:
  // The tenant of that name, made if there is none. The reference stays good until forget().
  TenantInfo& get(const TenantName& name, uid_t uid);
  // As the ledger tells it.
  TenantInfo& restore(TenantId id, const TenantName& name, uid_t uid);
  TenantInfo* find(const TenantName& name);
  TenantInfo* find(TenantId id);
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
