// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/holders.h"
#include "arbiter/daemon/watched.h"

namespace sharedgpu {

void Holders::add(TenantId tenant, const ProcessName& process, UniqueFd pidfd) {
  if (!pidfd) return;
  asio::posix::stream_descriptor watched(loop_);
  if (hand_over(pidfd, watched)) return;  // as where there is no descriptor
  const auto [entry, added] = processes_[tenant].emplace(process, std::move(watched));
  if (!added) return;
  auto& death = entry->second;
  death.async_wait(asio::posix::descriptor_base::wait_read,
                   [this, tenant, process](const asio::error_code& error) {
                     if (error) return;
                     auto found = processes_.find(tenant);
                     if (found == processes_.end() || found->second.erase(process) == 0) return;
                     if (!found->second.empty()) return;
                     processes_.erase(found);
                     ended_(tenant);
                   });
}

}  // namespace sharedgpu
