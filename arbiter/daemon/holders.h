// SPDX-License-Identifier: Apache-2.0
// The holders of a tenant: processes to which the arbiter has reported the tenant's GPUs, or which use GPUs
// that their user has chosen. They may start programs of the tenant. A placement ends when its tenant has
// neither holders nor sessions.
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

  // Adds a process and its pidfd. A process added twice counts once. Returns false if no descriptor is free
  // for the process.
  bool add(TenantId tenant, const ProcessName& process, UniqueFd pidfd);
  // Adds a process that held the tenant's placement under an earlier arbiter, if the process is still alive.
  // If no descriptor is free, retries until it succeeds or the process has ended.
  void restore(TenantId tenant, const ProcessName& process);
  // Forgets a tenant that has ended, even if some of its holders are alive.
  void forget(TenantId tenant);
  bool any(TenantId tenant) const;

 private:
  void find_again();

  asio::io_context& loop_;
  const System& system_;
  std::function<void(TenantId)> ended_;
  std::map<TenantId, std::map<ProcessName, asio::posix::stream_descriptor>> processes_;
  // processes that have no descriptor yet, and may have ended; opening a descriptor is tried again
  std::set<std::pair<TenantId, ProcessName>> unwatched_;
  asio::steady_timer timer_;
};

}  // namespace sharedgpu
