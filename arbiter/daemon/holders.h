// SPDX-License-Identifier: Apache-2.0
// The processes that hold a tenant's placement. The arbiter has told each of these processes the tenant's
// GPUs, and each starts programs on these GPUs. The placement of a tenant without holders and sessions ends.
//
// Event-loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "arbiter/daemon/system.h"
#include "arbiter/ledger/tenant_name.h"
#include "protocol/channel.h"
#include "protocol/units.h"

namespace sharedgpu {

class Holders {
 public:
  // `ended` is called when the last holder of a tenant has ended.
  Holders(asio::io_context& loop, const System& system, std::function<void(TenantId)> ended)
      : loop_(loop), system_(system), ended_(std::move(ended)), timer_(loop) {}

  // Adds a process and its pidfd. A process added twice counts once. Returns false if it cannot be added for
  // lack of a descriptor.
  bool add(TenantId tenant, const ProcessName& process, UniqueFd pidfd);
  // Adds a process that held the tenant under an earlier arbiter, if it still lives. If no descriptor is
  // free, this is retried until it succeeds.
  void restore(TenantId tenant, const ProcessName& process);
  // Forgets a tenant that has ended, even if holders live.
  void forget(TenantId tenant);
  bool any(TenantId tenant) const;

 private:
  void find_again();

  asio::io_context& loop_;
  const System& system_;
  std::function<void(TenantId)> ended_;
  std::map<TenantId, std::map<ProcessName, asio::posix::stream_descriptor>> processes_;
  std::set<std::pair<TenantId, ProcessName>> unwatched_;  // may live; retried
  asio::steady_timer timer_;
};

}  // namespace sharedgpu
