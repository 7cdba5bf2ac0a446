// SPDX-License-Identifier: Apache-2.0
// Checks what sessions claim about their host memory.
//
// Claims of a shortage: a session claims that it cannot evict for lack of host memory (Usage::stuck), or that
// its job needs host memory back (Want::host_short). A session whose claim is believed keeps its memory on
// the GPU, or is restored before others. So a claim is believed only if the process may really be short of
// host memory. A check computes how much host memory the process may still allocate. The tenant needs as much
// host memory as it must evict, plus an eighth of that, plus 512 MiB, plus the interposer's reserve of 4 MiB
// for each session of the tenant. The check contradicts the claim if the process may allocate more than the
// tenant needs. Away memory counts as used: the kernel charges it to no cgroup, but the interposer subtracts
// it from the job's memory, too. Even a brief shortage makes the interposer evict nothing for a minute. So
// the claim that a session cannot evict is refuted only by checks over a longer time. A check runs when a
// claim arrives and reads some files of /proc and /sys, at most twice a second for each process.
//
// Limits: a session could report higher limits than its cgroups have, and then allocate more memory than it
// can ever evict. This memory would stay on the GPU. So the arbiter uses the lower of two limits: the
// reported limit and the limit of the cgroups.
//
// Host memory held for swap (MemoryUse::host): a report is refuted if two conditions hold. The process has
// less memory than it reports, and the memory charged to its cgroup is less than the sum of all reports in
// this cgroup. An honest session may meet one of these two conditions: for example, the memory of a process
// that was moved is still charged to its former group. So a report is refuted only if all checks in ten
// seconds find both conditions. If a report is refuted, only the memory that the process really has counts.
// Managed memory is not checked, because the kernel may not list it for the process. A report of too little
// memory cannot be refuted, because the charge also contains all other memory of the group. The limit of the
// group bounds the memory that a process does not report.
//
// If a file cannot be read, the claim is believed. Event-loop thread only.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "arbiter/daemon/administration.h"
#include "arbiter/daemon/client.h"
#include "arbiter/daemon/complaints.h"
#include "arbiter/daemon/core_runner.h"
#include "arbiter/daemon/host_room.h"
#include "arbiter/daemon/session_table.h"
#include "arbiter/daemon/system.h"
#include "arbiter/ledger/tenants.h"

namespace sharedgpu {

class HostClaims {
 public:
  struct Parts {
    const System& system;
    const SessionTable& sessions;
    const Tenants& tenants;
    const CoreRunner& core;
    const Administration& administration;
    Complaints& complaints;
  };
  explicit HostClaims(const Parts& parts) : its_(parts) {}

  // Checks the claim that the session cannot evict. If the claim is refuted, logs it and returns false.
  bool believes_stuck(const Client& client);
  // Checks the claim that the session's job needs host memory back. If the claim is refuted, logs it and
  // returns false.
  bool believes_short(const Client& client);
  // Lowers the reported limits to the limits of the cgroups. If a report of host memory is refuted, logs
  // this, and lowers the reported memory to the memory that the process has. A Usage also reports the job's
  // limit.
  void bound(const Client& client, MemoryUse& use);
  void bound(const Client& client, Usage& usage);
  // The host memory that the process reports beyond the memory that it has; zero if its last reports were not
  // refuted.
  Bytes excess(const ProcessName& process) const;
  // The free host memory of a process whose claim that it cannot evict was refuted at most 20 s ago; nullopt
  // for other processes.
  std::optional<Bytes> refuted(const ProcessName& process) const;
  // Call when a session of the process has ended.
  void forget_gone(const ProcessName& process);

 private:
  struct Row {
    std::optional<Nanoseconds> looked;
    std::optional<Bytes> room;  // free host memory at the last check; nullopt if the claim may have been true
    Nanoseconds roomy{};        // time for which all checks have contradicted the claim
    bool told = false;          // the refutation was logged
  };
  // The limits of a process, and its reports of the host memory that it holds.
  struct Held {
    std::optional<Nanoseconds> limits_read;
    std::optional<HostMost> most;  // nullopt: unknown
    std::map<SessionId, Bytes> reported;
    std::string group;  // the memory cgroup that the process is charged to; empty if unknown
    std::optional<Nanoseconds> checked;
    bool exceeds_now = false;  // the last check has found that the reports exceed the memory held
    Nanoseconds exceeds{};     // time for which all checks have found such an excess
    Bytes holds;               // the memory that the process held at the last check
    bool told = false;
  };

  Row& look(const Client& client);
  bool judge(const Client& client, Row& its, bool refuted) const;
  Bytes needed(const Client& client) const;
  void read_limits(const Client& client, Held& its);
  bool exceeds(const Client& client, Held& its) const;
  void check_held(const Client& client, Held& its);

  const Parts its_;
  std::map<ProcessName, Row> rows_;
  std::map<ProcessName, Held> held_;
};

}  // namespace sharedgpu
