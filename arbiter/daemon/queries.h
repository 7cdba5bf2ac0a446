// SPDX-License-Identifier: Apache-2.0
// Answers read-only queries: the lease time and figures of jobs and steps, the GPU losses of jobs, the
// processes and memory that a process sees on a GPU, and the status.
//
// Event-loop thread only.
#pragma once

#include <optional>
#include <string>

#include "arbiter/daemon/administration.h"
#include "arbiter/daemon/client.h"
#include "arbiter/daemon/coordination.h"
#include "arbiter/daemon/core_runner.h"
#include "arbiter/daemon/device_claims.h"
#include "arbiter/daemon/health.h"
#include "arbiter/daemon/host_claims.h"
#include "arbiter/daemon/host_gpus.h"
#include "arbiter/daemon/jobs.h"
#include "arbiter/daemon/meters.h"
#include "arbiter/daemon/session_table.h"
#include "arbiter/daemon/status_files.h"
#include "arbiter/daemon/system.h"
#include "arbiter/daemon/token_bucket.h"
#include "arbiter/daemon/unmanaged.h"
#include "arbiter/daemon/viewers.h"
#include "arbiter/ledger/figure_book.h"
#include "arbiter/ledger/tenants.h"

namespace sharedgpu {

class Queries {
 public:
  struct Parts {
    const System& system;
    const SessionTable& sessions;
    const Tenants& tenants;
    const FigureBook& figures;
    const CoreRunner& core;
    const Administration& administration;
    const HostGpus& gpus;
    const Jobs& jobs;
    const HostClaims& host_claims;
    const Unmanaged& unmanaged;
    const DeviceClaims& device_claims;
    const Meters& meters;
    const Health& health;
    const Coordination& coordination;
    Viewers& viewers;
  };
  explicit Queries(const Parts& parts) : its_(parts), status_files_(parts.system) {}

  void lease(Client& client, const LeaseQuery& query);
  void job(Client& client, const JobQuery& query);
  void exchanges(Client& client, const ExchangeQuery& query);
  void gpu_loss(Client& client, const GpuLossQuery& query);
  void gpu(Client& client, const GpuQuery& query);
  void status(Client& client, const StatusQuery& query);

  // The text of `sharedgpu status --json`, as `viewer` sees it; nullopt: all tenants are shown.
  std::string status_text(std::optional<uid_t> viewer = {}) const;

 private:
  bool may_have_fresh_status(const Peer& peer);
  const TenantInfo* job_for(const Client& client, std::uint32_t number) const;
  std::string models_of(const TenantInfo& tenant) const;
  void list_processes(const Client& client, const GpuQuery& query, TenantId tenant, GpuReply& reply) const;

  const Parts its_;
  StatusFiles status_files_;
  TokenBuckets<uid_t> fresh_statuses_{4, 2};
};

}  // namespace sharedgpu
