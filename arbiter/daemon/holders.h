// SPDX-License-Identifier: Apache-2.0
// The processes that hold a tenant's placement: they were given its GPUs, and start programs there. Without
// such a process a tenant has no placement to keep.
//
// One thread, that of the event loop.
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

  // `pidfd` is of that process. A process that is added twice counts once. False: it does not count, for want
  // of a descriptor.
  bool add(TenantId tenant, const ProcessName& process, UniqueFd pidfd);
  // A process that held the tenant under an earlier arbiter counts as long as it lives. For want of a
  // descriptor it is looked for again and again.
  void restore(TenantId tenant, const ProcessName& process);
  // The tenant has ended, whichever of its holders live.
  void forget(TenantId tenant);
  bool any(TenantId tenant) const;

 private:
  void find_again();

  asio::io_context& loop_;
  const System& system_;
  std::function<void(TenantId)> ended_;
  std::map<TenantId, std::map<ProcessName, asio::posix::stream_descriptor>> processes_;
  std::set<std::pair<TenantId, ProcessName>> unwatched_;  // they may live
  asio::steady_timer timer_;
};

}  // namespace sharedgpu
