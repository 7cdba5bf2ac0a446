// SPDX-License-Identifier: Apache-2.0
// The daemon around the core: owns the parts of the daemon and connects them. message_table.cpp lists the
// messages that peers may send.
//
// Event-loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "arbiter/daemon/administration.h"
#include "arbiter/daemon/complaints.h"
#include "arbiter/daemon/connection.h"
#include "arbiter/daemon/coordination.h"
#include "arbiter/daemon/core_runner.h"
#include "arbiter/daemon/device_claims.h"
#include "arbiter/daemon/gpus.h"
#include "arbiter/daemon/health.h"
#include "arbiter/daemon/host_claims.h"
#include "arbiter/daemon/host_gpus.h"
#include "arbiter/daemon/jobs.h"
#include "arbiter/daemon/journal.h"
#include "arbiter/daemon/message_table.h"
#include "arbiter/daemon/meters.h"
#include "arbiter/daemon/notices.h"
#include "arbiter/daemon/queries.h"
#include "arbiter/daemon/reload.h"
#include "arbiter/daemon/run_groups.h"
#include "arbiter/daemon/schedule.h"
#include "arbiter/daemon/scontrol.h"
#include "arbiter/daemon/session_table.h"
#include "arbiter/daemon/sessions.h"
#include "arbiter/daemon/survey.h"
#include "arbiter/daemon/system.h"
#include "arbiter/daemon/unmanaged.h"
#include "arbiter/daemon/viewers.h"
#include "arbiter/ledger/history.h"
#include "config/settings.h"
#include "protocol/status.h"

namespace sharedgpu {

class Arbiter {
 public:
  Arbiter(asio::io_context& loop, Schedule& schedule, const System& system, const Settings& settings,
          std::unique_ptr<FileCalls> files = std::make_unique<FileCalls>(),
          std::unique_ptr<Mail> mail = nullptr);

  // Opens the ledger and adds the host's GPUs.
  Status start(const std::vector<GpuInfo>& gpus);
  // Serves a peer that has connected.
  void serve(std::shared_ptr<Connection> connection);
  // Returns true if the peer is a process of a job that Slurm has registered.
  bool is_of_job(const Peer& peer) const { return jobs_.knows_job_of(peer); }
  Complaints& complaints() { return complaints_; }
  // The part that reads the settings again.
  Reload& reload() { return reload_; }
  const Settings& settings() const { return administration_.settings(); }
  // "2 GPUs, 3 tenants", for the service manager.
  std::string summary() const;
  // Writes the latest times, sizes and energies of tenants to the ledger. Call before the loop ends.
  void end() { journal_.end(core_.core()); }
  // The text of `sharedgpu status --json`.
  std::string status() const { return queries_.status_text(); }

 private:
  void take_survey(const std::vector<SurveyedGpu>& gpus);
  Status recover();
  void closed(const Client& client, const std::string& reason);

  const System& system_;
  Complaints complaints_;
  History history_;
  Journal journal_;
  SessionTable session_table_;
  CoreRunner core_;
  Administration administration_;
  HostGpus gpus_;
  Scontrol scontrol_;
  Health health_;
  Coordination coordination_;
  RunGroups groups_;
  Jobs jobs_;
  HostClaims host_claims_;
  Sessions sessions_;
  Unmanaged unmanaged_;
  DeviceClaims device_claims_;
  Meters meters_;
  Survey survey_;
  Viewers viewers_;
  Notices notices_;
  Queries queries_;
  Reload reload_;
  MessageTable messages_;
  std::set<std::shared_ptr<Client>> clients_;  // clients with open connections
};

}  // namespace sharedgpu
