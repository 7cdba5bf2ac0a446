// SPDX-License-Identifier: Apache-2.0
// The daemon around the core: turns peers' messages into events, and the core's actions into messages, lease
// pages and ledger records. What each peer may say is decided here.
//
// One thread, that of the event loop.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "arbiter/core/core.h"
#include "arbiter/daemon/connection.h"
#include "arbiter/daemon/gpus.h"
#include "arbiter/daemon/keepers.h"
#include "arbiter/daemon/loans.h"
#include "arbiter/daemon/mps.h"
#include "arbiter/daemon/terms.h"
#include "arbiter/daemon/token_bucket.h"
#include "arbiter/daemon/users.h"
#include "arbiter/ledger/history.h"
#include "arbiter/ledger/ledger.h"
#include "config/settings.h"
#include "protocol/lease_page.h"

namespace sharedgpu {

class Arbiter {
 public:
  Arbiter(asio::io_context& loop, const Settings& settings);

  // Opens the ledger and takes in the host's GPUs. Returns an empty string or what is wrong.
  std::string start(const std::vector<GpuInfo>& gpus);
  // A peer has connected.
  void serve(const std::shared_ptr<Connection>& connection);
  // Writes down what is known so far, before the loop ends.
  void end();
  // The text of `sharedgpu status --json`.
  std::string status() const;

 private:
  enum class Role : std::uint8_t { none, session, run };
  struct Client {
    std::shared_ptr<Connection> connection;
    Role role = Role::none;
    SessionId session;
    TenantId tenant;
    GpuUuid gpu;    // that it is for: a process has a session for each GPU that it uses
    Traffic moved;  // as it told last
    LeasePageWriter page;
    std::optional<asio::posix::stream_descriptor> death;  // the peer's pidfd
    std::unique_ptr<asio::steady_timer> linger;
    std::string label;  // for the log: "job 12, pid 345"
  };
  using ClientPtr = std::shared_ptr<Client>;

  void hear(const ClientPtr& client, const Message& message, UniqueFd descriptor);
  void hear_hello(const ClientPtr& client, const Hello& hello);
  void hear_attach(Client& client, const Attach& attach);
  bool take_in(Client& client, const Attach& attach);
  void take_traffic(Client& client, Traffic moved);
  void hear_run_request(Client& client, const RunRequest& request);
  void hear_register_job(Client& client, const RegisterJob& job);
  void hear_end_job(Client& client, const EndJob& end);
  void hear_suspend_job(Client& client, const SuspendJob& job);
  void hear_lease_query(Client& client, const LeaseQuery& query);
  void hear_job_query(Client& client, const JobQuery& query);
  void hear_status_query(Client& client);
  void hear_set(Client& client, const SetLines& set);
  std::string not_here(const GpuNames& gpus) const;
  void hear_gpu_query(Client& client, const GpuQuery& query);
  void hear_borrow(Client& client, const Borrow& borrow);
  void hear_lend(Client& client, const Lend& lend, const UniqueFd& descriptor);
  void pass_on(const Loans::Passed& passed, int descriptor = -1);
  template <class Body>
  void pass_on(Client& client, const Message& message);

  void connection_closed(const ClientPtr& client, const std::string& reason);
  void linger(const ClientPtr& client);
  bool may_come_back(const Client& client) const;
  bool end_closed_session_of(const Peer& peer, const GpuUuid& gpu);
  void session_gone(const ClientPtr& client);
  void tenant_may_have_ended(TenantId tenant);
  GpuList place(const Client& client, TenantId tenant, const Demand& demand);
  void keep(const Client& client, PlaceRecord place);
  std::uint32_t threads_of(const TenantInfo& tenant, const GpuList& gpus) const;
  void placement_may_have_ended(TenantId tenant);
  void refuse(Client& client, const std::string& reason);

  TenantName name_of(const Peer& peer, const RunToken& token);
  void may_begin_anew(const TenantInfo& tenant, const RegisterJob& job);
  TenantInfo& known_or_new(const TenantName& name, uid_t uid);
  Bytes host_cap_of(const TenantInfo& tenant) const;
  std::string label_of(TenantId tenant) const;
  std::string models_of(const TenantInfo& tenant) const;

  void step(const Event& event);
  void perform(const Actions& actions);
  void arm(Nanoseconds at);
  void look_at(SessionId session);
  void record_figures(Nanoseconds at);
  // Whether this peer may add to the ledger or the log now; where not, it may a moment later.
  bool may_write(const Client& client);
  void record(const Record& record);
  void watch_leases();
  void flush_ledger();
  void add_gpu(const GpuInfo& gpu, bool learned);
  void start_mps();
  void set_rules();
  void partitions_may_have_changed();
  void set_terms(const TenantInfo& tenant);
  void warn_of_limits(const TenantInfo& tenant) const;

  asio::io_context& loop_;
  Settings settings_;
  Ledger ledger_;
  History history_;
  std::map<uid_t, TokenBucket> writes_;  // may_write()
  std::optional<Core> core_;
  std::optional<Administrators> administrators_;
  std::map<GpuUuid, std::string> gpu_names_;
  std::map<SessionId, ClientPtr> sessions_;
  Loans loans_;
  Keepers keepers_;
  GpuSearch search_;
  std::optional<Mps> mps_;
  Partitions partitions_;
  SessionId last_session_;
  asio::steady_timer timer_;
  asio::steady_timer ledger_retry_;
  asio::steady_timer seen_timer_;
  Nanoseconds last_record_{};
  bool watches_leases_ = false;
  bool ledger_failing_ = false;
};

}  // namespace sharedgpu
