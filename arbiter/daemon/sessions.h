// SPDX-License-Identifier: Apache-2.0
// Handles sessions that connect, report to the core, reconnect and leave.
//
// Event-loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <string>
#include <type_traits>

#include "arbiter/daemon/administration.h"
#include "arbiter/daemon/client.h"
#include "arbiter/daemon/coordination.h"
#include "arbiter/daemon/core_runner.h"
#include "arbiter/daemon/health.h"
#include "arbiter/daemon/host_claims.h"
#include "arbiter/daemon/host_gpus.h"
#include "arbiter/daemon/jobs.h"
#include "arbiter/daemon/journal.h"
#include "arbiter/daemon/loans.h"
#include "arbiter/daemon/run_groups.h"
#include "arbiter/daemon/schedule.h"
#include "arbiter/daemon/session_table.h"
#include "arbiter/daemon/system.h"
#include "arbiter/ledger/history.h"
#include "protocol/status.h"

namespace sharedgpu {

class Sessions {
 public:
  struct Parts {
    asio::io_context& loop;
    Schedule& schedule;
    const System& system;
    History& past;
    FigureBook& figures;
    SessionTable& table;
    Journal& journal;
    CoreRunner& core;
    Administration& administration;
    HostGpus& gpus;
    Health& health;
    Jobs& jobs;
    HostClaims& host_claims;
    const Coordination& coordination;
    RunGroups& groups;
  };
  explicit Sessions(const Parts& parts);

  // `last`: the highest session number that an earlier arbiter assigned.
  void start(SessionId last) { last_ = last; }

  void hello(Client& client, const Hello& hello);
  void attach(Client& client, const Attach& attach);
  // Passes a session's report to the core, unless the report shows that the session must be refused
  // (proves_itself()). Before that, removes claims that HostClaims does not believe, and lowers limits and
  // sizes that HostClaims bounds.
  template <class Body>
  void report(Client& client, const Body& body) {
    if constexpr (std::is_same_v<Body, Usage>)
      if (!proves_itself(client, body.use)) return;
    if constexpr (requires { body.moved; }) take_traffic(client, body.moved);
    if constexpr (requires { body.exchanges; }) take_exchanges(client, body.exchanges);
    From<Body> event{.session = client.session(), .body = body};
    if constexpr (requires { event.body.stuck; })
      if (body.stuck != 0) event.body.stuck = its_.host_claims.believes_stuck(client);
    if constexpr (requires { event.body.host_short; })
      if (body.host_short != 0) event.body.host_short = its_.host_claims.believes_short(client);
    if constexpr (requires { event.body.job_host_limit; })
      its_.host_claims.bound(client, event.body);
    else if constexpr (requires { event.body.use; })
      its_.host_claims.bound(client, event.body.use);
    its_.core.handle(event);
  }
  void borrow(Client& client, const Borrow& borrow);
  void explain(Client& client, const RefusalQuery& query);

  // Call when the connection of a session is closed.
  void closed(const Client& client);

 private:
  void begin(Client& client, const Hello& hello);
  Status open(Client& client, SessionTable::Entry& entry) const;
  History::PastSession record_arrival(const Client& client, const GpuUuid& gpu);
  void watch(SessionId id, SessionTable::Entry& entry);
  void note_gpu(const Client& client);
  bool may_attach(Client& client, const Attach& attach);
  bool proves_itself(Client& client, const MemoryUse& use);
  void take_traffic(const Client& client, Traffic moved);
  void take_exchanges(const Client& client, const Exchanges& exchanges);
  bool connect(Client& borrower, Client& lender, const Borrow& borrow) const;
  void await_reconnect(SessionId id, Nanoseconds pause);
  void check_reconnect(SessionId id);
  bool may_reconnect(const SessionTable::Entry& entry) const;
  void succeed_closed(const Client& client);
  void end_soon(SessionId id);
  void gone(SessionId id, SessionId heir = {});
  void drop_strangers(const TenantInfo& job);

  const Parts its_;
  Loans loans_;
  SessionId last_;
};

}  // namespace sharedgpu
