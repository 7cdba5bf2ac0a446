// SPDX-License-Identifier: Apache-2.0
// Runs the core: passes events and the time to the core, records and performs its actions, and polls
// processes on its request.
//
// Event-loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <optional>
#include <utility>

#include "arbiter/core/core.h"
#include "arbiter/daemon/complaints.h"
#include "arbiter/daemon/journal.h"
#include "arbiter/daemon/performer.h"
#include "arbiter/daemon/session_table.h"
#include "arbiter/daemon/system.h"

namespace sharedgpu {

class CoreRunner {
 public:
  CoreRunner(asio::io_context& loop, Schedule& schedule, const System& system, Journal& journal,
             SessionTable& sessions, const Tenants& tenants, Complaints& complaints);

  // Call before all other methods, except on_gang_report(). `policy` must outlive this object.
  void start(const Tuning& tuning, const Policy& policy, Recovered recovered);
  const Core& core() const { return *core_; }
  // Sets the function for the core's reports to the coordinators of gangs. The function must not call this
  // object.
  void on_gang_report(std::function<void(const TellGang&)> tell) { tell_gang_ = std::move(tell); }

  // Passes the event to the core. On return, the resulting actions are recorded and performed.
  void handle(const Event& event);
  // Calls Core::forget().
  void forget(TenantId tenant);

 private:
  void carry_out(Actions actions);
  void poll_process(SessionId id);

  const System& system_;
  Journal& journal_;
  const SessionTable& sessions_;
  Performer performer_;
  std::function<void(const TellGang&)> tell_gang_;
  std::optional<Core> core_;
};

}  // namespace sharedgpu
