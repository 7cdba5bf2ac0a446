// SPDX-License-Identifier: Apache-2.0
// The processes for whose sake tenants are placed: those that were told where, and so start programs there. A
// tenant without such a process has no placement to keep.
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

class Keepers {
 public:
  // `ended` is called when a tenant's last one has ended.
  Keepers(asio::io_context& loop, std::function<void(TenantId)> ended)
      : loop_(loop), ended_(std::move(ended)) {}

  // `pidfd` is of that process. Added again, it is one still.
  void add(TenantId tenant, const ProcessName& process, UniqueFd pidfd);
  // The tenant has ended, whoever lives of those who started it.
  void forget(TenantId tenant) { processes_.erase(tenant); }
  bool any(TenantId tenant) const { return processes_.count(tenant) > 0; }

 private:
  asio::io_context& loop_;
  std::function<void(TenantId)> ended_;
  std::map<TenantId, std::map<ProcessName, asio::posix::stream_descriptor>> processes_;
};

}  // namespace sharedgpu
