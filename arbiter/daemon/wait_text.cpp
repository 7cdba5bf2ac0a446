// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/wait_text.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace sharedgpu {
namespace {

std::string seconds(Nanoseconds time) {
  return std::to_string(std::lround(std::ceil(std::chrono::duration<double>(time).count()))) + " s";
}

// The GPU that the tenant waits for: the GPU of the first session with a waiting thread.
const Snapshot::Gpu* awaited_gpu(const WaitView& view, const Snapshot::Tenant& waiting) {
  for (const SessionId id : waiting.sessions) {
    const Snapshot::Session& session = *view.state.find(id);
    if (session.wants && session.gpu) return view.state.find(*session.gpu);
  }
  return nullptr;
}

// The other tenants with sessions on the GPU.
std::vector<const Snapshot::Tenant*> others_on(const WaitView& view, const Snapshot::Gpu& gpu,
                                               TenantId waiting) {
  std::set<TenantId> ids;
  for (const SessionId id : gpu.sessions) ids.insert(view.state.find(id)->tenant);
  ids.erase(waiting);
  std::vector<const Snapshot::Tenant*> others;
  for (const TenantId id : ids)
    if (const Snapshot::Tenant* tenant = view.state.find(id)) others.push_back(tenant);
  return others;
}

std::string name_of(const WaitView& view, TenantId id) {
  const auto known = view.tenants.all().find(id);
  const bool may_name =
      known != view.tenants.all().end() && (!view.viewer || known->second.belongs_to(*view.viewer));
  return may_name ? known->second.label() : "another job";
}

// Describes the activity of the tenants that hold the GPU. `holders` is not empty.
std::string describe_holders(const WaitView& view, const Snapshot::Gpu& gpu,
                             const std::vector<const Snapshot::Tenant*>& holders) {
  const bool one = holders.size() == 1;
  const std::string who = one ? name_of(view, holders.front()->id) : std::to_string(holders.size()) + " jobs";
  const auto overdue = std::find_if(holders.begin(), holders.end(), [](const Snapshot::Tenant* holder) {
    return holder->overdue.has_value();
  });
  if (overdue != holders.end())
    return name_of(view, (*overdue)->id) + " has kept it for " +
           seconds(view.now - (*overdue)->overdue->since) + " since its turn ended";
  Nanoseconds left{};
  for (const Snapshot::Tenant* holder : holders)
    left = std::max(left, holder->turn_began + gpu.turn.length - view.now);
  if (left > Nanoseconds{}) return "the turn of " + who + " lasts up to " + seconds(left) + " more";
  return "the turn of " + who + " is ending";
}

// The tenant's place among the waiting tenants. The place is not a number of turns: some tenants before it
// may share a turn, and later tenants may go first.
std::string describe_place(const WaitView& view, const Snapshot::Gpu& gpu, TenantId waiting) {
  const std::vector<TenantId> queue = view.queue(gpu.uuid);
  const auto place = std::find(queue.begin(), queue.end(), waiting);
  if (place == queue.end() || queue.size() == 1) return {};
  const auto before = static_cast<std::size_t>(place - queue.begin());
  if (before == 0) return "; it is next in the queue";
  return "; it is number " + std::to_string(before + 1) + " of " + std::to_string(queue.size()) +
         " in the queue, so about " +
         (before == 1 ? std::string("1 turn") : std::to_string(before) + " turns") + " of " +
         seconds(gpu.turn.length) + (before == 1 ? " comes" : " come") + " before its own";
}

}  // namespace

std::optional<Nanoseconds> wait_of(const Snapshot::Tenant& tenant, const LeaseBook& leases, Nanoseconds now) {
  if (!tenant.wants || leases.holds(tenant.id) || tenant.absent) return {};
  return now - tenant.waiting_since;
}

std::string describe_wait(const WaitView& view, const Snapshot::Tenant& waiting) {
  const Nanoseconds waited = wait_of(waiting, view.leases, view.now).value_or(Nanoseconds{});
  const Snapshot::Gpu* gpu = awaited_gpu(view, waiting);
  std::string text = "this job has waited " + seconds(waited) + " for ";
  if (gpu == nullptr) return text + "its GPU";
  text += "GPU " + std::to_string(gpu->number) + ": ";
  std::vector<const Snapshot::Tenant*> holders = others_on(view, *gpu, waiting.id);
  std::erase_if(holders, [&](const Snapshot::Tenant* other) { return !view.leases.holds(other->id); });
  const auto known = view.tenants.all().find(waiting.id);
  if (waiting.phase == Phase::entering)
    text += "its turn begins when its memory is back on the GPU";
  else if (!holders.empty())
    text += describe_holders(view, *gpu, holders);
  else if (known != view.tenants.all().end() && known->second.spans_nodes())
    text += "its turn begins when the GPUs on its other nodes are free, too";
  else
    text += "its turn has not begun yet";
  return text + describe_place(view, *gpu, waiting.id);
}

}  // namespace sharedgpu
