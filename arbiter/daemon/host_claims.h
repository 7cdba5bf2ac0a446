// SPDX-License-Identifier: Apache-2.0
// Judges what sessions say of their host memory: that it does not suffice to evict (Usage::stuck), or that
// their job needs it back (Want::host_short). A session that says so keeps its memory on the GPU, or comes in
// before others; so it is believed only where its process may be short of host memory.
//
// It is looked up how much the process may still take. More than all that its tenant is to evict, an eighth,
// and what the library keeps for other processes, refutes the claim. A job may be short for a moment, and the
// library then evicts nothing for a minute: that it cannot evict is refuted only by looks over a longer time.
// A look is taken at a claim, and costs some files of /proc and /sys: two a second for each process.
//
// A reading that fails refutes nothing. One thread, that of the event loop.
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

  // The session says that it cannot evict. False: it is not believed, and the log says so.
  bool believes_stuck(const Client& client);
  // The session says that its job needs host memory. The same.
  bool believes_short(const Client& client);
  // The room of a process whose last word that it cannot evict was not believed, a moment ago.
  std::optional<Bytes> refuted(const ProcessName& process) const;
  // A session of the process has ended.
  void forget_gone(const ProcessName& process);

 private:
  struct Row {
    std::optional<Nanoseconds> looked;
    std::optional<Bytes> room;  // at the last look, where it is more than enough
    Nanoseconds roomy{};        // for so long looks have found that without a break
    bool told = false;          // the log says so
  };

  Row& look(const Client& client);
  bool judge(const Client& client, Row& its, bool refuted) const;
  Bytes needed(const Client& client) const;

  const Parts its_;
  std::map<ProcessName, Row> rows_;
};

}  // namespace sharedgpu
