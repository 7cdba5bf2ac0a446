// SPDX-License-Identifier: Apache-2.0
// Connects the gangs of this node with the arbiters of other nodes. Passes reports from the core to each
// gang's coordinator, and orders from the coordinator to the core. Sends reports and orders to other nodes in
// messages between arbiters (mail.h).
//
// Asks Slurm for the nodes of a job and for the addresses of these nodes (NodeAddr). Event-loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "arbiter/core/events.h"
#include "arbiter/daemon/complaints.h"
#include "arbiter/daemon/mail.h"
#include "arbiter/daemon/scontrol.h"
#include "arbiter/daemon/system.h"
#include "arbiter/gang/desk.h"
#include "arbiter/gang/members.h"
#include "arbiter/ledger/tenants.h"

namespace sharedgpu {

class CoreRunner;

class Coordination {
 public:
  struct Parts {
    asio::io_context& loop;
    const System& system;
    const Tenants& tenants;
    CoreRunner& core;
    Complaints& complaints;
    // the file of the nodes whose arbiters have sent messages (HeardNodes), for the next arbiter
    std::string heard_file;
    std::string boot;  // the host's boot id; empty: unknown, and the next arbiter ignores the file
  };
  // If `mail` is null, all jobs on several nodes have their turns on each node independently, as if no node
  // could reach another.
  Coordination(const Parts& parts, std::unique_ptr<Mail> mail);

  // Begins to exchange messages with the arbiters of other nodes. Call when Slurm has registered a job on
  // this node.
  void start();
  // If the tenant is a job on several nodes, returns the number of the job (SessionCame::job); else zero.
  std::uint32_t job_of(const TenantInfo& tenant) const;
  // Call when the core has a report for the coordinator of the tenant's gang.
  void report(const TellGang& told);
  const GangMembers& gangs() const { return members_; }

 private:
  struct NodeAddress {
    std::string text;  // empty: unknown
    bool is_sought = false;
    Nanoseconds ask_at{};
  };
  void heard(const std::string& from, std::string_view text);
  void tend();
  void ask_slurm();
  void send_messages(Nanoseconds now);
  void find_name();
  void begin_mail();
  void wake_for_next(Nanoseconds now);
  void tend_soon();
  void restore_heard();
  void keep_heard(Nanoseconds now);
  void log_change(TenantId tenant) const;
  uid_t account_of(std::uint32_t job) const;
  void log_silent(const GangDesk::Silent& silent) const;
  void log_apart(const GangDesk::Apart& apart) const;
  const NodeAddress& address_of(const std::string& node);

  const Parts its_;
  const std::unique_ptr<Mail> mail_;
  Scontrol scontrol_;  // not shared with drains and requeues, which may be retried for minutes
  std::string node_;   // the node's name in Slurm
  HeardNodes heard_{GangTimes{}.recent};
  GangMembers members_;
  GangDesk desk_;
  asio::steady_timer timer_;
  bool started_ = false;
  bool is_named_ = false;  // the node's name in Slurm is known, and messages to other arbiters are sent
  bool soon_ = false;      // a call of tend() is queued
  std::map<std::string, NodeAddress> addresses_;
  Nanoseconds kept_at_{};  // the time at which heard_file was last written
};

}  // namespace sharedgpu
