// SPDX-License-Identifier: Apache-2.0
// Tells users why their jobs wait. If a job waits longer than NoticeAfter=, one session of the job prints the
// reason on standard error, at most once in each run of the job on this node.
//
// Event-loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "arbiter/daemon/administration.h"
#include "arbiter/daemon/core_runner.h"
#include "arbiter/daemon/jobs.h"
#include "arbiter/daemon/session_table.h"
#include "arbiter/daemon/system.h"
#include "arbiter/daemon/viewers.h"
#include "arbiter/ledger/tenants.h"

namespace sharedgpu {

class Notices {
 public:
  struct Parts {
    asio::io_context& loop;
    const System& system;
    const SessionTable& sessions;
    const Tenants& tenants;
    const CoreRunner& core;
    const Administration& administration;
    Jobs& jobs;
    Viewers& viewers;
  };
  explicit Notices(const Parts& parts) : its_(parts), timer_(parts.loop) {}

  // Starts to check twice a second how long each job has waited. The checks stop when no session is left.
  void wake();

 private:
  void look();
  bool any_untold() const;
  Client* listener(const Snapshot::Tenant& tenant) const;

  const Parts its_;
  asio::steady_timer timer_;
  bool looks_ = false;
};

}  // namespace sharedgpu
