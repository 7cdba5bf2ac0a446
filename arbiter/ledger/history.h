// SPDX-License-Identifier: Apache-2.0
// The state recorded in a ledger: tenants, sessions, placements, leases and totals. A starting arbiter
// continues from this state, and each new file of the ledger begins with it.
//
// Pure; not thread-safe.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "arbiter/core/recovered.h"
#include "arbiter/ledger/figure_book.h"
#include "arbiter/ledger/reader.h"
#include "arbiter/ledger/records.h"
#include "arbiter/ledger/tenants.h"

namespace sharedgpu {

// Returns the start time of the process in clock ticks since the host's boot; 0 if there is no such process;
// nullopt if unknown: the process may be alive.
using StartTimeOf = std::function<std::optional<std::uint64_t>(pid_t pid)>;

// Returns true if two sessions of one process, on GPUs `a` and `b`, may be the same session. A zero UUID
// stands for a session that is not attached, or whose GPU is unknown.
inline bool may_be_same(const GpuUuid& a, const GpuUuid& b) {
  return a == b || a == GpuUuid{} || b == GpuUuid{};
}

class History final : private LedgerVisitor {
 public:
  // A job counts as over if it has no living process or step, and if for this time the ledger has had no
  // registration, session, lease or figures of the job.
  static constexpr std::chrono::hours kLongestPause{24 * 7};

  // Call for each record of the ledger, oldest first, starting with a whole checkpoint or the first record.
  void add(const Record& record) { reader_.read(record, *this); }

  // Returns the records that bring an empty history to the state of this history. The next file of the ledger
  // begins with these records. Omits placements that no living process keeps (`keepers`), and jobs that are
  // probably over.
  std::vector<Record> checkpoint(StartTimeOf starts);

  // Must be called after the last record. Ends the sessions and tenants that ended while no arbiter ran, and
  // all leases if the host was rebooted, given this boot of the host and the processes that are alive now.
  // Returns the records of these ends, which the caller appends to the ledger.
  std::vector<Record> finish(const BootRecord& boot, StartTimeOf starts, Nanoseconds now);

  struct PastSession {
    SessionId id;  // zero: none
    bool expected = false;
  };
  // Returns the session that this process had on `gpu` under the previous arbiter, and removes the session
  // from the history.
  PastSession take_session(std::uint32_t pid, std::uint64_t started, const GpuUuid& gpu);
  // Returns true if this process had a session with the previous arbiter and has not reconnected.
  bool expects(const ProcessName& process) const;

  Tenants tenants;
  Recovered recovered;
  FigureBook figures;
  SessionId last_session;
  std::map<GpuUuid, GpuRecord> gpu_records;  // the states of GPUs that have a fault or are drained
  // For each tenant, the processes that were informed of its placement, or that use it. The placement in
  // `recovered` is kept while one of these processes is alive. A tenant without a placement is kept in the
  // same way.
  std::map<TenantId, std::set<ProcessName>> keepers;

 private:
  struct Past {
    SessionRecord record;
    GpuUuid gpu;  // zero: not attached
    bool attached() const { return gpu != GpuUuid{}; }
  };

  void on_boot(const BootRecord& boot, bool rebooted) override;
  void on_tenant(const TenantRecord& tenant, Nanoseconds at) override;
  void on_options(const OptionsRecord& options, Nanoseconds at) override;
  void on_class(const ClassRecord& job) override;
  void on_gang(const GangRecord& gang) override;
  void on_group(const GroupRecord& group) override;
  void on_place(const PlaceRecord& place) override;
  void on_session(const SessionRecord& session, Nanoseconds at) override;
  void on_attach(const AttachRecord& attach) override;
  void on_gone(const GoneRecord& gone) override;
  void on_grant(const LeaseKey& key, const OpenLease& lease) override;
  void on_release(const LeaseKey& key, const OpenLease& lease, Nanoseconds at) override;
  void on_step_time(const StepTimeRecord& step, Nanoseconds at) override;
  void on_gpu_time(const GpuTimeRecord& gpu) override;
  void on_used(const UsedRecord& used, Nanoseconds at) override;
  void on_energy(const EnergyRecord& energy) override;
  void on_begin(const BeginRecord& begin) override;
  void on_over(const OverRecord& over) override;
  void on_end(const EndRecord& end) override;
  void on_gpu(const GpuRecord& gpu) override;
  void on_loss(const LossRecord& loss) override;
  void on_past_loss(const PastLossRecord& loss) override;
  void on_checkpoint(const CheckpointRecord& checkpoint) override;

  void forget(TenantId tenant);
  void forget_boot();
  std::set<TenantId> may_be_asked_for() const;
  std::vector<TenantId> ended_tenants() const;
  void keep_placements(StartTimeOf starts);

  LedgerReader reader_;
  std::map<SessionId, Past> sessions_;
  std::map<TenantId, Nanoseconds> touched_;  // when each tenant's last registration, session, lease or
                                             // figures were recorded since the boot
};

}  // namespace sharedgpu
