// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/host_gpus.h"

#include <algorithm>
#include <cerrno>

#include "arbiter/daemon/log.h"
#include "arbiter/daemon/validity.h"
#include "config/quantities.h"
#include "protocol/gpu_names.h"

namespace sharedgpu {
namespace {

constexpr std::size_t kMostGpus = 64;
// Bounds on the number of GPUs that only sessions report: for one user, for all users without units, and for
// all users but root.
constexpr std::ptrdiff_t kMostOfUser = 16;
constexpr std::ptrdiff_t kMostWithoutUnits = 24;
constexpr std::ptrdiff_t kMostOfUsers = 48;

std::string printable(const char (&name)[sizeof(Attach::name)]) {
  std::string text;
  for (std::size_t i = 0; i < sizeof name && name[i] != '\0'; ++i)
    text += name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
  return text;
}

}  // namespace

HostGpus::HostGpus(asio::io_context& loop, const System& system, CoreRunner& core,
                   Administration& administration, Complaints& complaints,
                   std::function<void(const std::vector<GpuInfo>&)> found)
    : core_(core),
      administration_(administration),
      complaints_(complaints),
      found_(std::move(found)),
      search_(loop, system, [this](const std::vector<GpuInfo>& gpus) { take(gpus); }) {}

void HostGpus::start(const std::vector<GpuInfo>& found) {
  if (!found.empty()) {
    take(found);
    return search_.go_on(found);
  }
  log::warning("no GPU found: no tenant is placed until a GPU appears; the arbiter keeps looking");
  search_.start();
}

void HostGpus::take(const std::vector<GpuInfo>& found) {
  for (const GpuInfo& gpu : found)
    if (!core_.core().has_found(gpu.uuid)) add(gpu);
  found_(found);
}

// `known`: the current number of GPUs.
bool HostGpus::has_room_for(const Teller& teller, std::size_t known) const {
  if (known >= kMostGpus) return false;
  if (teller.uid == 0) return true;
  const auto count = [this](auto&& counts) {
    return std::count_if(told_.begin(), told_.end(), [&](const auto& each) { return counts(each.second); });
  };
  return count([&](const Teller& each) { return each.uid == teller.uid; }) < kMostOfUser &&
         count([](const Teller& each) { return each.uid != 0; }) < kMostOfUsers &&
         (teller.has_units ||
          count([](const Teller& each) { return each.uid != 0 && !each.has_units; }) < kMostWithoutUnits);
}

Status HostGpus::attach(const Attach& attach, const Teller& teller) {
  const Core& core = core_.core();
  if (core.knows(attach.gpu)) return {};
  if (attach.total == Bytes{} || attach.total > kLargest) return {EINVAL, "a GPU without memory"};
  if (!has_room_for(teller, core.gpus()))
    return {ENOSPC, "too many GPUs that only sessions report and the arbiter does not find"};
  told_[attach.gpu] = teller;
  add({.uuid = attach.gpu, .total = attach.total, .name = printable(attach.name)}, teller.uid);
  return {};
}

// `teller`: the user whose session reported the GPU; nullopt if the arbiter found the GPU itself.
void HostGpus::add(const GpuInfo& gpu, std::optional<uid_t> teller) {
  const bool learned = teller.has_value();
  const DeviceMemory bounds = administration_.device_memory_of(gpu.uuid);
  const Bytes capacity = capacity_of(gpu.total, bounds.limit.of(gpu.total), bounds.reserve.of(gpu.total));
  names_[gpu.uuid] = gpu.name;
  complaints_.add(
      teller.value_or(0), Cause::gpu,
      "GPU " + format_gpu(gpu.uuid) + " (" + gpu.name + "): " + format_size(capacity) + " of " +
          format_size(gpu.total) +
          (learned ? " to hand out; a session reported the size, which is not verified" : " to hand out"),
      log::info);
  if (!learned) told_.erase(gpu.uuid);
  core_.handle(GpuFound{
      .gpu = gpu.uuid, .total = gpu.total, .capacity = capacity, .learned = learned, .minor = gpu.minor});
  administration_.set_rules();
}

void HostGpus::forget_gone() {
  const auto is_gone = [&](const auto& entry) { return !core_.core().knows(entry.first); };
  std::erase_if(names_, is_gone);
  std::erase_if(told_, is_gone);
}

}  // namespace sharedgpu
