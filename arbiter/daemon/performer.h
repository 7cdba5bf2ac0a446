// SPDX-License-Identifier: Apache-2.0
// Performs the core's actions: sends messages, opens and closes gates, arms the timer, ends processes.
//
// Event-loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "arbiter/core/events.h"
#include "arbiter/daemon/cancellations.h"
#include "arbiter/daemon/complaints.h"
#include "arbiter/daemon/journal.h"
#include "arbiter/daemon/schedule.h"
#include "arbiter/daemon/session_table.h"
#include "arbiter/daemon/system.h"
#include "arbiter/ledger/tenants.h"

namespace sharedgpu {

class Performer {
 public:
  struct Callbacks {
    // `timer_fired` is called at the time stated in an ArmTimer action. `poll_process` is called for each
    // Look action, in the turn of the process's user (schedule.h). Neither function is called before
    // perform() has returned.
    std::function<void()> timer_fired;
    std::function<void(SessionId)> poll_process;
    std::function<void(const TellGang&)> tell_gang;  // must not call the core
  };
  Performer(asio::io_context& loop, Schedule& schedule, const System& system, SessionTable& sessions,
            const Tenants& tenants, Complaints& complaints, Callbacks callbacks);

  void perform(const RecordedActions& actions);

 private:
  void perform(const Send& send);
  void perform(const SetGate& gate);
  void perform(const SetContended& contended);
  void perform(const SetOversubscribed& oversubscribed);
  void perform(const SetTurnEnds& ends);
  void perform(const RecordLease& lease);
  void perform(const Drop& drop);
  void perform(const Look& look);
  void perform(const ArmTimer& timer);
  void perform(const Note& note);
  void perform(const Overstay& overstay);
  void perform(const TellGang& told);
  void log_overstay(const Overstay& overstay, const std::string& what,
                    const std::vector<const SessionTable::Entry*>& there);

  Schedule& schedule_;
  const System& system_;
  SessionTable& sessions_;
  const Tenants& tenants_;
  Complaints& complaints_;
  const Callbacks callbacks_;
  asio::steady_timer timer_;
  std::optional<Nanoseconds> armed_;  // the time at which the timer fires
  Cancellations cancellations_;
};

}  // namespace sharedgpu
