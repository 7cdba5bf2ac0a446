// SPDX-License-Identifier: Apache-2.0
// The processes that hold a tenant's placement: they were given its GPUs, and start programs there. Without
// such a process a tenant has no placement to keep.
//
// One thread, that of the event loop.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <functional>
#include <map>

#include "arbiter/ledger/tenant_name.h"
#include "protocol/channel.h"
#include "protocol/units.h"

namespace sharedgpu {

class Holders {
 public:
  // `ended` is called when the last holder of a tenant has ended.
  Holders(asio::io_context& loop, std::function<void(TenantId)> ended)
      : loop_(loop), ended_(std::move(ended)) {}

  // `pidfd` is of that process. A process that is added twice counts once.
  void add(TenantId tenant, const ProcessName& process, UniqueFd pidfd);
  // The tenant has ended, whichever of its holders live.
  void forget(TenantId tenant) { processes_.erase(tenant); }
  bool any(TenantId tenant) const { return processes_.count(tenant) > 0; }

 private:
  asio::io_context& loop_;
  std::function<void(TenantId)> ended_;
  std::map<TenantId, std::map<ProcessName, asio::posix::stream_descriptor>> processes_;
};

}  // namespace sharedgpu
