// SPDX-License-Identifier: Apache-2.0
// Tells the user of each job that waits longer than NoticeAfter= what it waits for: sends one session of the
// job a line for its standard error, once in each run of the job on this node.
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

  // Looks at the waits of all jobs twice a second from now on, until no session is left.
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
