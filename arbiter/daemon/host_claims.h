// SPDX-License-Identifier: Apache-2.0
// Checks what sessions claim about their host memory: that it does not suffice to evict (Usage::stuck), or
// that their job needs it back (Want::host_short). A session whose claim is believed keeps its memory on the
// GPU, or is restored before others. So a claim is believed only if the process may really be short of host
// memory.
//
// A check computes how much host memory the process may still take. The claim is refuted if this amount
// exceeds the memory that the tenant has to evict, plus an eighth of that, plus the library's reserve for
// other processes. A job may be short for a moment, and the library then evicts nothing for a minute; so a
// claim that it cannot evict is refuted only by checks over a longer time. A check runs when a claim arrives
// and reads some files of /proc and /sys, at most twice a second for each process.
//
// A failed read refutes nothing. Event-loop thread only.
#pragma once

#include <map>
#include <optional>

#include "arbiter/daemon/administration.h"
#include "arbiter/daemon/client.h"
#include "arbiter/daemon/complaints.h"
#include "arbiter/daemon/core_runner.h"
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

  // Handles the claim that the session cannot evict. Returns false, and logs it, if refuted.
  bool believes_stuck(const Client& client);
  // Handles the claim that the session's job needs host memory back. Returns false, and logs it, if refuted.
  bool believes_short(const Client& client);
  // The host memory still free to a process whose last claim that it cannot evict was refuted moments ago;
  // none otherwise.
  std::optional<Bytes> refuted(const ProcessName& process) const;
  // Call it when a session of the process has ended.
  void forget_gone(const ProcessName& process);

 private:
  struct Row {
    std::optional<Nanoseconds> looked;
    std::optional<Bytes> room;  // free host memory at the last check, if that was more than enough
    Nanoseconds roomy{};        // for how long all checks have found enough
    bool told = false;          // the refutation was logged
  };

  Row& look(const Client& client);
  bool judge(const Client& client, Row& its, bool refuted) const;
  Bytes needed(const Client& client) const;

  const Parts its_;
  std::map<ProcessName, Row> rows_;
};

}  // namespace sharedgpu
