// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/administration.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "arbiter/daemon/log.h"
#include "config/quantities.h"
#include "protocol/gpu_names.h"

namespace sharedgpu {
namespace {

std::string describe(const Settings& settings) {
  return "policy " + settings.policy + ", quantum " +
         (settings.quantum == Nanoseconds{}
              ? "auto"
              : std::to_string(std::chrono::duration<double>(settings.quantum).count()) + " s");
}

// Returns true if the host memory per unit (SwapPerUnit=) depends on the GPUs of the tenant.
bool depends_on_gpu(const Settings& settings) {
  const auto& entries = settings.swap_per_unit.entries;
  return std::any_of(entries.begin(), entries.end(), [](const auto& entry) { return !entry.size; });
}

}  // namespace

Administration::Administration(asio::io_context& loop, const System& system, const Settings& settings,
                               CoreRunner& core, const Tenants& tenants, Complaints& complaints)
    : loop_(loop),
      system_(system),
      file_(settings),
      settings_(settings),
      core_(core),
      tenants_(tenants),
      complaints_(complaints) {}

void Administration::find_administrators() {
  std::string unknown;
  administrators_ = Administrators(system_, settings_, unknown);
  if (!unknown.empty()) log::warning("AdminUsers or StatusUsers: no such user: " + unknown);
}

void Administration::start_mps() {
  const std::string folder = mps_folder(settings_.socket);
  if (settings_.mps)
    mps_.emplace(loop_, system_, folder, settings_.state_dir + "/mps", [this] { set_rules(); }).start();
  else if (Mps::find(system_, folder))
    log::warning("Mps=no: the control daemon of an earlier arbiter still runs; see sharedgpu.conf(5)");
}

// The rules depend on the core's state. A section of the settings may name GPUs by number, and the core
// assigns these numbers. A section may also name partitions, and the jobs of partitions start and end. While
// the MPS control daemon serves, the policy `deadline` limits the threads of processes. Otherwise this policy
// limits the time of tenants.
void Administration::set_rules() {
  Settings now_so = settings_;
  now_so.mps = mps_ && mps_->serves();
  core_.handle(rules_of(core_.core().snapshot(), now_so, partitions_));
}

// The rules of a partition apply only to GPUs that serve jobs of no other partition.
void Administration::partitions_may_have_changed() {
  const auto is_about_partitions = [](const Section& section) { return section.of == SectionOf::partition; };
  if (std::none_of(settings_.sections.begin(), settings_.sections.end(), is_about_partitions)) return;
  Partitions now_there = partitions_of(core_.core().snapshot(), tenants_);
  if (now_there == partitions_) return;
  partitions_ = std::move(now_there);
  set_rules();
}

CapSet Administration::terms_of(const TenantInfo& tenant) const {
  return {.tenant = tenant.id,
          .cap = tenant.options.memory,
          .host_cap = units_memory(tenant, settings_, largest_gpu_of(tenant.id)),
          .oversize = settings_of(settings_, tenant.job_class).oversize,
          .claims = claims_of(tenant, settings_)};
}

// If the tenant has no GPU yet, returns the memory of the node's largest GPU, since the tenant may get any
// GPU.
Bytes Administration::largest_gpu_of(TenantId tenant) const {
  if (!depends_on_gpu(settings_)) return {};
  const Snapshot state = core_.core().snapshot();
  std::set<GpuUuid> its;
  if (const auto placed = state.placements.find(tenant); placed != state.placements.end())
    its.insert(placed->second.gpus.begin(), placed->second.gpus.end());
  for (const Snapshot::Session& session : state.sessions)
    if (session.tenant == tenant && session.gpu) its.insert(*session.gpu);
  Bytes largest;
  for (const Snapshot::Gpu& gpu : state.gpus)
    if (its.empty() || its.count(gpu.uuid) > 0) largest = std::max(largest, gpu.total);
  return largest;
}

Bytes Administration::memory_of(const GpuList& gpus) const {
  const auto end = gpus.gpu + gpus.count;
  Bytes sum;
  for (const Snapshot::Gpu& gpu : core_.core().snapshot().gpus)
    if (gpus.count == 0 || std::find(gpus.gpu, end, gpu.uuid) != end) sum += gpu.total;
  return sum;
}

void Administration::gpu_may_have_changed(const TenantInfo& tenant) {
  if (depends_on_gpu(settings_)) set_terms(tenant);
}

void Administration::warn_of_limits(const TenantInfo& tenant) const {
  for (const std::string& what : excessive_requests(tenant, settings_))
    complaints_.add(tenant.account, Cause::excessive, tenant.label() + ": " + what);
}

std::uint32_t Administration::threads_of(const TenantInfo& tenant, const GpuList& gpus) const {
  if (!mps_ || !mps_->serves()) return 0;
  const Claims claims = claims_of(tenant, settings_);
  double part = claims.limit;
  const auto end = gpus.gpu + gpus.count;
  for (const Snapshot::Gpu& gpu : core_.core().snapshot().gpus)
    if (gpus.count == 0 || std::find(gpus.gpu, end, gpu.uuid) != end)
      part = std::min(part, Core::threads_on(gpu, claims));
  return static_cast<std::uint32_t>(std::clamp(std::lround(100 * part), 1l, 100l));
}

void Administration::change_settings(Client& client, const SetLines& lines) {
  Overrides changed = overrides_;
  if (std::string error = changed.change({lines.text, strnlen(lines.text, sizeof lines.text)});
      !error.empty())
    return client.connection().refuse(error);
  for (const Section& section : changed.over(file_).sections)
    if (std::string unknown = unknown_gpu(section.gpus); !unknown.empty() && !is_in_file(section))
      return client.connection().refuse("no GPU " + unknown + " here");
  overrides_ = std::move(changed);
  apply_settings();
  log_settings("pid " + std::to_string(client.peer().pid) + ", uid " + std::to_string(client.peer().uid));
  client.send(SetReply{.done = 1});
}

void Administration::apply_settings() {
  settings_ = overrides_.over(file_);
  partitions_may_have_changed();  // the new settings may name partitions, and the old settings none
  set_rules();
  core_.handle(TuningSet{node_tuning_of(settings_)});
  for (const auto& [id, tenant] : tenants_.all()) set_terms(tenant);
}

Difference Administration::reload(const Settings& file) {
  Difference found = difference(file_, file);
  for (const Snapshot::Gpu& gpu : core_.core().snapshot().gpus)
    earlier_memory_.try_emplace(gpu.uuid, device_memory_of(gpu.uuid));
  file_ = with_live_keys(file_, file);
  apply_settings();
  find_administrators();
  set_capacities();
  log_settings("the settings were read again");
  return found;
}

DeviceMemory Administration::device_memory_of(const GpuUuid& gpu) const {
  const auto earlier = earlier_memory_.find(gpu);
  return earlier == earlier_memory_.end()
             ? DeviceMemory{.limit = settings_.device_memory_limit, .reserve = settings_.memory_reserve}
             : earlier->second;
}

// A program is told the capacity of its GPU once, so a GPU with sessions gets no smaller capacity.
void Administration::set_capacities() {
  for (const Snapshot::Gpu& gpu : core_.core().snapshot().gpus) {
    const Bytes wanted = capacity_of(gpu.total, settings_.device_memory_limit.of(gpu.total),
                                     settings_.memory_reserve.of(gpu.total));
    if (wanted < gpu.capacity && !gpu.sessions.empty()) continue;
    earlier_memory_.erase(gpu.uuid);
    if (wanted == gpu.capacity) continue;
    core_.handle(CapacitySet{.gpu = gpu.uuid, .capacity = wanted});
    log::info("GPU " + std::to_string(gpu.number) + ": " + format_size(wanted) + " of " +
              format_size(gpu.total) + " to hand out");
  }
  std::erase_if(earlier_memory_, [this](const auto& each) { return !core_.core().knows(each.first); });
}

void Administration::session_ended() {
  if (capacity_is_due()) set_capacities();
}

bool Administration::is_in_file(const Section& section) const {
  return std::any_of(file_.sections.begin(), file_.sections.end(),
                     [&](const Section& each) { return each.is_about_the_same(section); });
}

void Administration::log_settings(const std::string& who) const {
  log::info(who + ": " + describe(settings_));
  for (const Snapshot::Gpu& gpu : core_.core().snapshot().gpus) {
    const Settings its = settings_on(gpu, settings_, partitions_);
    if (describe(its) != describe(settings_))
      log::info("GPU " + std::to_string(gpu.number) + ": " + describe(its));
  }
}

std::string Administration::unknown_gpu(const GpuNames& names) const {
  const Snapshot state = core_.core().snapshot();
  for (const std::uint32_t number : names.numbers)
    if (std::none_of(state.gpus.begin(), state.gpus.end(),
                     [number](const Snapshot::Gpu& gpu) { return gpu.number == number; }))
      return std::to_string(number);
  for (const GpuUuid& uuid : names.uuids)
    if (state.find(uuid) == nullptr) return format_gpu(uuid);
  return {};
}

}  // namespace sharedgpu
