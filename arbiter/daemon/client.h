// SPDX-License-Identifier: Apache-2.0
// A peer of the daemon: its connection, its identity and its role.
//
// Event-loop thread only.
#pragma once

#include <memory>
#include <string>

#include "arbiter/daemon/connection.h"
#include "arbiter/ledger/tenants.h"
#include "protocol/messages.h"

namespace sharedgpu {

// none: the peer has no role yet. part: a process of a run, without a session. session: a process with a
// session on this connection. run: a `sharedgpu run` command.
enum class Role : std::uint8_t { none, part, session, run };

class Client : public std::enable_shared_from_this<Client> {
 public:
  explicit Client(std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)), label_("pid " + std::to_string(peer().pid)) {}

  const Peer& peer() const { return connection_->peer(); }
  Role role() const { return role_; }
  SessionId session() const { return session_; }  // valid if the role is session
  TenantId tenant() const { return tenant_; }     // the tenant of a session or of a run
  // The name of the peer in the log: "pid 345", or "job 12, pid 345" for a process of a tenant.
  const std::string& label() const { return label_; }

  // The next three functions set the role.
  void take_part() { role_ = Role::part; }
  void become_session(SessionId session, const TenantInfo& tenant) {
    session_ = session;
    take_role(Role::session, tenant);
  }
  void become_run(const TenantInfo& tenant) { take_role(Role::run, tenant); }

  template <class Body>
  void send(const Body& body, int descriptor = -1) {
    connection_->send(Message::of(body), descriptor);
  }
  Connection& connection() { return *connection_; }

 private:
  void take_role(Role role, const TenantInfo& tenant) {
    role_ = role;
    tenant_ = tenant.id;
    label_ = tenant.label() + ", pid " + std::to_string(peer().pid);
  }

  const std::shared_ptr<Connection> connection_;
  Role role_ = Role::none;
  SessionId session_;
  TenantId tenant_;
  std::string label_;
};

}  // namespace sharedgpu
