// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/holders.h"

#include "arbiter/daemon/processes.h"
#include "arbiter/daemon/watched.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::seconds kFindAgain{1};

bool may_live(const System& system, const ProcessName& process) {
  const auto started = known_start_time_of(system, static_cast<pid_t>(process.pid));
  return started.value_or(process.started) == process.started;
}

}  // namespace

bool Holders::any(TenantId tenant) const {
  const auto first = unwatched_.lower_bound({tenant, ProcessName{}});
  return processes_.count(tenant) > 0 || (first != unwatched_.end() && first->first == tenant);
}

void Holders::forget(TenantId tenant) {
  processes_.erase(tenant);
  std::erase_if(unwatched_, [tenant](const auto& each) { return each.first == tenant; });
}

void Holders::restore(TenantId tenant, const ProcessName& process) {
  if (add(tenant, process, open_process(system_, process)) || !may_live(system_, process)) return;
  unwatched_.emplace(tenant, process);
  if (unwatched_.size() > 1) return;
  timer_.expires_after(kFindAgain);
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error) find_again();
  });
}

void Holders::find_again() {
  const auto before = std::exchange(unwatched_, {});
  for (const auto& [tenant, process] : before) restore(tenant, process);
  for (const auto& [tenant, process] : before)
    if (!any(tenant)) ended_(tenant);
}

bool Holders::add(TenantId tenant, const ProcessName& process, UniqueFd pidfd) {
  if (!pidfd) return false;
  asio::posix::stream_descriptor watched(loop_);
  if (hand_over(pidfd, watched)) return false;
  const auto [entry, added] = processes_[tenant].emplace(process, std::move(watched));
  if (!added) return true;
  auto& death = entry->second;
  await_death(death, [this, tenant, process] {
    auto found = processes_.find(tenant);
    if (found == processes_.end() || found->second.erase(process) == 0) return;
    if (!found->second.empty()) return;
    processes_.erase(found);
    if (!any(tenant)) ended_(tenant);
  });
  return true;
}

}  // namespace sharedgpu
