// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/holders.h"

namespace sharedgpu {

void Holders::add(TenantId tenant, const ProcessName& process, UniqueFd pidfd) {
  if (!pidfd) return;
  auto& all = processes_[tenant];
  if (all.count(process) > 0) return;
  auto& death = all.emplace(process, asio::posix::stream_descriptor(loop_, pidfd.release())).first->second;
  death.async_wait(asio::posix::descriptor_base::wait_read,
                   [this, tenant, process](const asio::error_code& error) {
                     if (error) return;
                     auto entry = processes_.find(tenant);
                     if (entry == processes_.end() || entry->second.erase(process) == 0) return;
                     if (!entry->second.empty()) return;
                     processes_.erase(entry);
                     ended_(tenant);
                   });
}

}  // namespace sharedgpu
