// SPDX-License-Identifier: Apache-2.0
// Creates and ends tenants. A tenant is a job that Slurm registers, ends and suspends, a run of `sharedgpu
// run`, or a process outside of jobs and runs.
//
// Event-loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "arbiter/daemon/administration.h"
#include "arbiter/daemon/client.h"
#include "arbiter/daemon/complaints.h"
#include "arbiter/daemon/coordination.h"
#include "arbiter/daemon/core_runner.h"
#include "arbiter/daemon/journal.h"
#include "arbiter/daemon/placements.h"
#include "arbiter/daemon/run_groups.h"
#include "arbiter/daemon/system.h"
#include "arbiter/ledger/figure_book.h"
#include "arbiter/ledger/tenants.h"

namespace sharedgpu {

class Jobs {
 public:
  // When this many tenants are known and a new job comes, the least recently active jobs without living
  // processes are forgotten.
  static constexpr std::size_t kMostKnown = 10'000;

  Jobs(asio::io_context& loop, const System& system, Tenants& tenants, FigureBook& figures, CoreRunner& core,
       Administration& administration, Journal& journal, Complaints& complaints, Coordination& coordination,
       RunGroups& groups);

  // Restores the holders of placements (holders.h) from the ledger.
  void restore(const std::map<TenantId, std::set<ProcessName>>& holders);

  // Sets the function that is called if a job is registered for a different user than its earlier sessions
  // had.
  void on_other_user(std::function<void(const TenantInfo&)> react) { react_ = std::move(react); }

  // Call if the arbiter starts without a ledger. For a minute after this call, the arbiter believes sessions
  // that claim to reconnect, even if their jobs are unknown.
  void begin_without_ledger() { strange_until_ = system_.now() + std::chrono::minutes(1); }
  bool lacks_ledger() const { return system_.now() < strange_until_; }

  // Returns the reason why Tenants=jobs excludes a session of the process with this token; empty if the
  // session is served.
  std::string refusal(const Peer& peer, const RunToken& token, bool comes_back) const;
  // Returns the tenant of the process with this token, and creates it if needed. Counts one more session of
  // the tenant; leave() counts one less.
  TenantInfo& join(const Peer& peer, const RunToken& token);
  void leave(TenantId tenant);
  // The name that the process's tenant has, or will have when it is created.
  TenantName name_of(const Peer& peer, const RunToken& token) const;
  const TenantInfo* find(TenantId tenant) const { return std::as_const(tenants_).find(tenant); }
  // The run with this token, if the process is outside Slurm's steps and belongs to the run's user; else
  // null.
  const TenantInfo* run_of(const Peer& peer, const RunToken& token) const;
  // Returns true if the process is in a step of a registered job and belongs to the job's user.
  bool knows_job_of(const Peer& peer) const;
  // Returns true if Slurm or a trusted batch system has granted the tenant's units: the tenant is a
  // registered job, or a run with RunRequest::vouched.
  bool has_units(TenantId tenant) const;
  // Returns true if a process of the tenant is alive, or may reconnect after a restart of the arbiter.
  bool lives(const TenantInfo& tenant) const;

  void run(Client& client, const RunRequest& request);
  void join_run(Client& client, const JoinRun& join);
  // Call when the connection of a run is closed.
  void run_closed(const Client& client);
  void register_job(Client& client, const RegisterJob& job);
  void register_gang(Client& client, const RegisterGang& gang);
  void end_job(Client& client, const EndJob& end);
  void suspend_job(Client& client, const SuspendJob& job);
  // Returns true if a process of the tenant has already told the user that the limit `bound` refused an
  // allocation. Notes that the user is told now. All limits other than the GPU's count as one limit.
  bool was_told(TenantId tenant, Bound bound);
  // Returns true if the tenant's user has already been sent a line about a long wait in this run, or if the
  // tenant is forgotten. Notes that the user is told now.
  bool was_told_of_wait(TenantId tenant);

 private:
  TenantInfo& known_or_new(const TenantName& name, uid_t uid);
  TenantInfo* find_job(std::uint32_t number);
  std::uint32_t counted_units(const TenantInfo& run, std::uint32_t stated) const;
  void take_options(TenantInfo& tenant, const RegisterJob& job);
  void set_nodes(TenantInfo& tenant, std::uint32_t nodes, const std::string& coordinator);
  void may_begin_anew(TenantInfo& tenant, const RegisterJob& job);
  bool was_here(const TenantInfo& tenant, const StepName& step, bool begins) const;
  void may_have_ended(TenantId tenant);
  void forget_where_ended(TenantId tenant);
  void forget(TenantId tenant);
  void forget_old_jobs();
  bool may_be_forgotten(const TenantInfo& tenant) const;

  const System& system_;
  Tenants& tenants_;
  FigureBook& figures_;
  CoreRunner& core_;
  Administration& administration_;
  Journal& journal_;
  Complaints& complaints_;
  Coordination& coordination_;
  RunGroups& groups_;
  Placements placements_;
  std::function<void(const TenantInfo&)> react_;
  Nanoseconds strange_until_{};
  Nanoseconds looked_for_old_;
};

// The name of the job with the number `number`.
inline TenantName job_name(std::uint32_t number) {
  TenantName name;
  name.job = number;
  return name;
}

}  // namespace sharedgpu
