// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/standing.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "config/quantities.h"

namespace sharedgpu::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Tenant = NodeStatus::Tenant;

// A sentence about more than kNamed + 1 other tenants names only kNamed of them, and states the number of the
// rest.
constexpr std::size_t kNamed = 3;

template <class List, class Value>
bool has(const List& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::string format_duration(double seconds) {
  char text[64];
  const long whole = std::lround(seconds);
  if (seconds < 59.95)
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  else if (whole < 3600)
    std::snprintf(text, sizeof text, "%ld min %ld s", whole / 60, whole % 60);
  else
    std::snprintf(text, sizeof text, "%ld h %ld min", whole / 3600, whole / 60 % 60);
  return text;
}

Standing::Other other_of(const Tenant& tenant, const UserName& name) {
  const bool enters = tenant.phase == "entering";
  return {.id = tenant.id,
          .name = tenant.name,
          .user = name(tenant.uid),
          .state = tenant.state(),
          .overdue = tenant.overdue,
          .left_to_evict = tenant.to_evict,
          .left_to_restore = enters ? minus(tenant.footprint, tenant.resident) : Bytes{}};
}

Standing::OnGpu on_gpu(const NodeStatus& status, const NodeStatus::Gpu& gpu, const Tenant& self,
                       const UserName& name) {
  Standing::OnGpu on;
  on.number = gpu.number;
  if (gpu.condition != "healthy") on.fault = gpu.condition + (gpu.fault.empty() ? "" : ": " + gpu.fault);
  on.hidden_holders = gpu.hidden_holders();
  on.waiting = gpu.queue.size();
  on.turn_left = gpu.turn_left;
  if (const auto place = std::find(gpu.queue.begin(), gpu.queue.end(), self.id); place != gpu.queue.end())
    on.place = static_cast<std::size_t>(place - gpu.queue.begin()) + 1;
  for (const Tenant& tenant : status.tenants) {
    if (tenant.id == self.id || !has(tenant.gpus, gpu.uuid)) continue;
    if (has(gpu.holders, tenant.id))
      on.holders.push_back(other_of(tenant, name));
    else if (tenant.phase == "entering")
      on.arriving.push_back(other_of(tenant, name));
    else if (tenant.to_evict > Bytes{})
      on.moving_out.push_back(other_of(tenant, name));
  }
  return on;
}

std::string list_of(const std::vector<Standing::Other>& others) {
  std::string text;
  const std::size_t named = others.size() > kNamed + 1 ? kNamed : others.size();
  for (std::size_t i = 0; i < named; ++i) {
    const bool last = i + 1 == others.size();
    text += (i == 0 ? "" : last ? " and " : ", ") + others[i].text();
  }
  if (named < others.size()) text += " and " + std::to_string(others.size() - named) + " others";
  return text;
}

std::string first_upper(std::string text) {
  if (!text.empty() && text.front() >= 'a' && text.front() <= 'z')
    text.front() = static_cast<char>(text.front() - 'a' + 'A');
  return text;
}

std::string reason_of(const NodeStatus::Overdue& overdue) {
  if (overdue.waits_for == "stopped") return "it is stopped";
  if (overdue.waits_for == "answer") return "it does not answer";
  if (overdue.waits_for == "eviction") return "its memory is not moved off the GPU yet";
  return "its work there is not finished";
}

// "GPU 0", or "GPUs 0 and 1".
std::string gpus_of(const Standing& standing) {
  std::string text = standing.gpus.size() == 1 ? "GPU " : "GPUs ";
  for (std::size_t i = 0; i < standing.gpus.size(); ++i) {
    if (i > 0) text += i + 1 == standing.gpus.size() ? " and " : ", ";
    text += std::to_string(standing.gpus[i].number);
  }
  return text;
}

// The GPU in whose queue the tenant is farthest back.
const Standing::OnGpu& slowest(const Standing& standing) {
  return *std::max_element(standing.gpus.begin(), standing.gpus.end(),
                           [](const auto& a, const auto& b) { return a.place < b.place; });
}

// A sentence about what happens on the GPU while the tenant waits for this GPU.
std::string what_it_waits_for(const Standing::OnGpu& on) {
  for (const Standing::Other& holder : on.holders)
    if (holder.overdue)
      return first_upper(holder.text()) + " has kept the GPU for " +
             format_duration(holder.overdue->seconds) + " after its turn: " + reason_of(*holder.overdue) +
             ".";
  if (!on.arriving.empty()) {
    Bytes left;
    for (const Standing::Other& other : on.arriving) left += other.left_to_restore;
    return first_upper(list_of(on.arriving)) + (on.arriving.size() == 1 ? " goes" : " go") + " first" +
           (left > Bytes{} ? ": " + format_size(left) + " of memory still has to be moved to the GPU." : ".");
  }
  if (!on.holders.empty() || on.hidden_holders > 0) {
    const bool one = on.holders.size() + on.hidden_holders == 1;
    const bool leaves =
        on.hidden_holders == 0 && std::all_of(on.holders.begin(), on.holders.end(),
                                              [](const auto& holder) { return holder.state == "leaving"; });
    std::string text = list_of(on.holders);
    if (on.hidden_holders > 0) text += (text.empty() ? "" : " and ") + hidden_jobs(on.hidden_holders);
    text = first_upper(text);
    if (leaves) return text + (one ? " finishes its" : " finish their") + " work at the end of the turn.";
    text += one ? " has the GPU" : " have the GPU";
    if (!on.turn_left) return text + ".";
    if (*on.turn_left <= 0) return text + ", and the turn is over.";
    return text + ", and the turn may last another " + format_duration(*on.turn_left) + ".";
  }
  if (!on.moving_out.empty()) {
    Bytes left;
    for (const Standing::Other& other : on.moving_out) left += other.left_to_evict;
    return format_size(left) + " of memory of " + list_of(on.moving_out) +
           " still has to be moved off the GPU.";
  }
  return "Nobody has the GPU at this moment.";
}

}  // namespace

std::vector<const Tenant*> tenants_of(const NodeStatus& status, const Asker& asker) {
  const auto all = [&](auto is_its) {
    std::vector<const Tenant*> own;
    for (const Tenant& tenant : status.tenants)
      if (is_its(tenant)) own.push_back(&tenant);
    return own;
  };
  if (!asker.job && !asker.run) return all([&](const Tenant& tenant) { return tenant.uid == asker.uid; });
  std::vector<const Tenant*> own =
      all([&](const Tenant& tenant) { return asker.job && tenant.job == asker.job; });
  return own.empty() ? all([&](const Tenant& tenant) { return asker.run && tenant.id == *asker.run; }) : own;
}

Standing standing_of(const NodeStatus& status, const Tenant& tenant, const UserName& name) {
  Standing standing{.tenant = tenant, .recovering = status.recovering, .gpus = {}};
  for (const NodeStatus::Gpu& gpu : status.gpus)
    if (has(tenant.gpus, gpu.uuid)) standing.gpus.push_back(on_gpu(status, gpu, tenant, name));
  return standing;
}

std::string sentences(const Standing& standing) {
  const Tenant& self = standing.tenant;
  const std::string name = first_upper(self.name);
  if (standing.gpus.empty()) return name + " has not used a shared GPU of this node yet.";
  const std::string gpus = gpus_of(standing);
  for (const Standing::OnGpu& on : standing.gpus)
    if (on.fault.starts_with("lost"))
      return "GPU " + std::to_string(on.number) + " of " + self.name + " is " + on.fault + ".";
  if (standing.recovering)
    return "The arbiter has just started and waits until the processes of " + self.name +
           " are connected again.";
  if (self.stopped) return name + " is stopped: it gets no turn until its processes go on.";
  const std::string state = self.state();
  if (state == "idle") {
    const std::string memory = self.footprint == Bytes{}
                                   ? "."
                                   : "; " + format_size(self.resident) + " of its " +
                                         format_size(self.footprint) + " are on the GPU.";
    return name + " has no work for " + gpus + " at this moment" + memory;
  }
  if (state == "entering") {
    const Bytes left = minus(self.footprint, self.resident);
    std::string text = name + " gets " + gpus + " now";
    if (left > Bytes{})
      text += ": " + format_size(left) + " of its memory still " + "has to be moved to the GPU";
    text += ".";
    std::vector<Standing::Other> others;
    for (const Standing::OnGpu& on : standing.gpus)
      others.insert(others.end(), on.moving_out.begin(), on.moving_out.end());
    if (!others.empty()) text += " Memory of " + list_of(others) + " is being moved off the GPU for it.";
    return text;
  }
  if (state == "leaving")
    return "The turn of " + self.name + " on " + gpus + " is over; its work there is being finished since " +
           format_duration(self.leaving) + ".";
  if (state == "running") {
    const Standing::OnGpu& on =
        *std::max_element(standing.gpus.begin(), standing.gpus.end(),
                          [](const auto& a, const auto& b) { return a.waiting < b.waiting; });
    std::string text = name + " has " + gpus;
    if (on.waiting == 0) return text + ", and nobody waits for it.";
    text += "; " + std::to_string(on.waiting) + (on.waiting == 1 ? " other waits." : " others wait.");
    if (on.turn_left) text += " The turn may last another " + format_duration(*on.turn_left) + ".";
    return text;
  }
  const Standing::OnGpu& on = slowest(standing);
  std::string text = name + " waits for " + gpus;
  if (on.place > 0)
    text += on.waiting == 1 ? ", and is next in the queue"
                            : ", as number " + std::to_string(on.place) + " of " +
                                  std::to_string(on.waiting) + " in the queue";
  text += ". " + what_it_waits_for(on);
  if (self.nodes > 1)
    text += " Its turn begins on all of its " + std::to_string(self.nodes) + " nodes together.";
  if (self.stuck) text += " Its own memory cannot leave the GPU, mostly for lack of host memory.";
  return text;
}

namespace {

OrderedJson json_of(const std::vector<Standing::Other>& others) {
  OrderedJson list = OrderedJson::array();
  for (const Standing::Other& other : others)
    list.push_back(
        {{"id", other.id},
         {"name", other.name},
         {"user", other.user},
         {"state", other.state},
         {"overdue_seconds", other.overdue ? OrderedJson(other.overdue->seconds) : OrderedJson(nullptr)},
         {"to_evict_bytes", other.left_to_evict.count},
         {"to_restore_bytes", other.left_to_restore.count}});
  return list;
}

}  // namespace

OrderedJson json_of(const Standing& standing) {
  const Tenant& self = standing.tenant;
  OrderedJson gpus = OrderedJson::array();
  for (const Standing::OnGpu& on : standing.gpus)
    gpus.push_back({{"number", on.number},
                    {"fault", on.fault.empty() ? OrderedJson(nullptr) : OrderedJson(on.fault)},
                    {"place", on.place == 0 ? OrderedJson(nullptr) : OrderedJson(on.place)},
                    {"waiting", on.waiting},
                    {"turn_left_seconds", on.turn_left ? OrderedJson(*on.turn_left) : OrderedJson(nullptr)},
                    {"holders", json_of(on.holders)},
                    {"hidden_holders", on.hidden_holders},
                    {"arriving", json_of(on.arriving)},
                    {"moving_out", json_of(on.moving_out)}});
  return {{"id", self.id},
          {"name", self.name},
          {"state", self.state()},
          {"lease_seconds", self.lease_seconds},
          {"waited_seconds", self.waited},
          {"footprint_bytes", self.footprint.count},
          {"resident_bytes", self.resident.count},
          {"gpus", gpus},
          {"text", sentences(standing)}};
}

}  // namespace sharedgpu::cli
