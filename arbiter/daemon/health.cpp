// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/health.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "arbiter/daemon/log.h"
#include "protocol/gpu_names.h"
#include "protocol/split.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kMisses = 3;  // a GPU is lost after this many surveys or searches in a row without it
// A lost GPU counts as healthy again after it has responded for this long. The time doubles with each loss
// within an hour of the previous loss, since tenants lose their work at each loss.
constexpr Nanoseconds kWellFor = 2s;
constexpr Nanoseconds kLongestWellFor = 10min;
constexpr Nanoseconds kForgiven = 1h;
constexpr Nanoseconds kLookCounts = 3s;  // the age up to which a survey is recent; surveys come every second
constexpr std::size_t kMostNamed = 16;   // maximum number of tenants named in one log line
// When a GPU is lost, its processes may end with errors of the driver some seconds before NVML reports the
// loss.
constexpr Nanoseconds kDiedOfIt = 5s;
constexpr std::size_t kMostGone = 1024;

constexpr std::uint64_t kFallenOffTheBus = 79;
// The Xids for which NVIDIA's documentation (Xid Errors, Analyzing Xid Catalog) lists RESET_GPU as the
// immediate action, and Xid 48, a double-bit error, which a reset clears. NVLink Xids are excluded if their
// cause may be outside this GPU. Xid 155 can come from an intended change of a link. The meaning of Xids 74
// and 144 to 150 depends on registers that NVML does not report. Xid 154 is excluded because it only
// summarizes other Xids.
constexpr std::uint64_t kWantReset[] = {46, 48, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 156, 158};

constexpr char kResetRequired[] = "reset required";

}  // namespace

void Health::restore(const std::map<GpuUuid, GpuRecord>& past) {
  for (const auto& [uuid, gpu] : past) {
    GpuState& its = states_[uuid];
    its.condition = static_cast<GpuCondition>(std::min(gpu.condition, 2u));
    its.fault = text_of(gpu.fault);
    if (gpu.drain != "-") its.drain = text_of(gpu.drain);
  }
  // NVML has listed the GPUs of these placements. A GPU that NVML does not list in the next surveys is lost.
  for (const auto& [tenant, placement] : its_.core.core().snapshot().placements)
    for (const GpuUuid& gpu : placement.gpus) sightings_[gpu];
}

// Reports the state of a GPU to the core. Call after GpuFound.
void Health::sync(const GpuUuid& gpu) {
  const auto known = states_.find(gpu);
  if (known == states_.end()) return;
  its_.core.handle(GpuChanged{.gpu = gpu, .condition = known->second.condition});
  its_.core.handle(GpuDrained{.gpu = gpu, .drained = known->second.drain.has_value()});
}

// Returns true if the last survey is recent; its list of GPUs is then more reliable than the result of a
// search.
bool Health::knows_better() const { return looked_ && its_.system.now() - *looked_ < kLookCounts; }

void Health::found(const std::vector<GpuInfo>& gpus) {
  bool by_nvml = false;
  std::set<GpuUuid> there;
  for (const GpuInfo& gpu : gpus) {
    there.insert(gpu.uuid);
    if (gpu.minor) sightings_[gpu.uuid].misses = 0;
    by_nvml = by_nvml || gpu.minor;
    if (gpu.minor && !knows_better()) note_well(gpu.uuid);
    sync(gpu.uuid);
  }
  if (by_nvml && !knows_better())
    for (const auto& [uuid, seen] : sightings_)
      if (there.count(uuid) == 0) note_missing(uuid);
  its_.gpus.watch_closely(std::any_of(sightings_.begin(), sightings_.end(), [&](const auto& entry) {
    const auto state = states_.find(entry.first);
    const bool is_lost = state != states_.end() && state->second.condition == GpuCondition::lost;
    return is_lost || there.count(entry.first) == 0;
  }));
}

void Health::looked(const std::vector<GpuHealth>& gpus, bool all) {
  looked_ = its_.system.now();
  bool is_news = false;
  std::set<GpuUuid> there;
  for (const GpuHealth& gpu : gpus) {
    there.insert(gpu.uuid);
    sightings_[gpu.uuid].misses = 0;
    is_news = is_news || (gpu.status == 0 && !its_.core.core().has_found(gpu.uuid));
    note_status(gpu.uuid, gpu.status);
    if (gpu.ecc_errors) note_ecc_errors(gpu.uuid, *gpu.ecc_errors);
  }
  if (is_news) its_.gpus.search_now();
  if (!all) return;
  for (const auto& [uuid, seen] : sightings_)
    if (there.count(uuid) == 0) note_missing(uuid);
}

void Health::saw(const GpuSign& sign) {
  if (sign.kind == GpuSign::Kind::status) return note_status(sign.uuid, sign.number);
  if (sign.kind == GpuSign::Kind::ecc_error) return set(sign.uuid, GpuCondition::failing, "ECC error");
  const std::string xid = "Xid " + std::to_string(sign.number);
  if (sign.number == kFallenOffTheBus) return set(sign.uuid, GpuCondition::lost, xid);
  if (std::find(std::begin(kWantReset), std::end(kWantReset), sign.number) != std::end(kWantReset))
    return set(sign.uuid, GpuCondition::failing, xid);
  its_.complaints.add(0, Cause::gpu, name_of(sign.uuid) + " reports " + xid, log::info);
}

void Health::note_status(const GpuUuid& gpu, std::uint64_t status) {
  if (status == 0) return note_well(gpu);
  sightings_[gpu].well_since.reset();
  if (status == kNvmlLost) set(gpu, GpuCondition::lost, "lost to its driver");
  if (status == kNvmlResetRequired) set(gpu, GpuCondition::failing, kResetRequired);
}

void Health::note_well(const GpuUuid& gpu) {
  const auto known = states_.find(gpu);
  if (known == states_.end()) return;
  const GpuState& its = known->second;
  if (its.condition == GpuCondition::failing && its.fault == kResetRequired)
    return set(gpu, GpuCondition::healthy, {});
  if (its.condition != GpuCondition::lost) return;
  std::optional<Nanoseconds>& since = sightings_[gpu].well_since;
  const Nanoseconds now = its_.system.now();
  if (!since) since = now;
  if (now - *since >= well_for(sightings_[gpu])) set(gpu, GpuCondition::healthy, {});
}

Nanoseconds Health::well_for(const Sightings& seen) {
  const unsigned doublings = std::min(seen.losses == 0 ? 0 : seen.losses - 1, 16u);
  return std::min(kWellFor * (1 << doublings), kLongestWellFor);
}

void Health::note_missing(const GpuUuid& gpu) {
  Sightings& seen = sightings_[gpu];
  seen.well_since.reset();
  if (++seen.misses >= kMisses) set(gpu, GpuCondition::lost, "not in the host any more");
}

// A reset of the GPU clears the error count, so a lower count means that the GPU works again.
void Health::note_ecc_errors(const GpuUuid& gpu, std::uint64_t errors) {
  const auto before = std::exchange(sightings_[gpu].ecc_errors, errors);
  if (!before || *before == errors) return;
  const auto known = states_.find(gpu);
  const bool is_failing = known != states_.end() && known->second.condition == GpuCondition::failing;
  if (errors > *before)
    set(gpu, GpuCondition::failing, "ECC error");
  else if (is_failing)
    set(gpu, GpuCondition::healthy, {});
}

void Health::set(const GpuUuid& gpu, GpuCondition condition, const std::string& fault) {
  const auto known = states_.find(gpu);
  const GpuCondition before = known == states_.end() ? GpuCondition::healthy : known->second.condition;
  if (before == condition || (before == GpuCondition::lost && condition == GpuCondition::failing)) return;
  const std::vector<Guest> guests = guests_of(gpu);
  GpuState& its = states_[gpu];
  its.condition = condition;
  its.fault = fault;
  Sightings& seen = sightings_[gpu];
  seen.well_since.reset();
  if (condition == GpuCondition::lost) {
    const Nanoseconds now = its_.system.now();
    seen.losses = now - std::exchange(seen.lost, now) > kForgiven ? 1 : seen.losses + 1;
  }
  record(gpu);  // must precede the records of the ends of leases on the GPU
  if (condition == GpuCondition::lost) note_losses(gpu, guests);
  its_.core.handle(GpuChanged{.gpu = gpu, .condition = condition});
  if (condition == GpuCondition::healthy) {
    log::warning(name_of(gpu) + " is back");
    return;
  }
  std::string who;
  for (std::size_t i = 0; i < std::min(guests.size(), kMostNamed); ++i)
    who += (i == 0 ? "" : ", ") + guests[i].label;
  if (guests.size() > kMostNamed) who += " and " + std::to_string(guests.size() - kMostNamed) + " more";
  log::error(complaint_of(gpu, its) + "; tenants there: " + (who.empty() ? "none" : who));
  tell_slurm(gpu, guests);
  its_.gpus.search_now();
}

void Health::note_losses(const GpuUuid& gpu, const std::vector<Guest>& guests) {
  const std::string& fault = states_[gpu].fault;
  for (const Guest& guest : guests) {
    if (TenantInfo* tenant = its_.tenants.find(guest.id)) tenant->note_loss(gpu, fault);
    its_.journal.record(LossRecord{.tenant = guest.id, .gpu = gpu, .fault = word_of(fault)});
  }
  its_.journal.flush();
}

void Health::tell_slurm(const GpuUuid& gpu, const std::vector<Guest>& guests) {
  const GpuLossMeasures& measures = its_.administration.settings().on_gpu_loss;
  if (measures.drain) its_.scontrol.drain_node("sharedgpu: " + complaint());
  if (!measures.requeue || states_[gpu].condition != GpuCondition::lost) return;
  for (const Guest& guest : guests)
    if (guest.job != 0) its_.scontrol.requeue(guest.job);
}

// Returns the reason for a drain of the node. Slurm keeps only the last reason, so each reason names all GPUs
// that are not healthy.
std::string Health::complaint() const {
  std::vector<std::string> each;
  for (const auto& [gpu, its] : states_)
    if (its.condition != GpuCondition::healthy) each.push_back(complaint_of(gpu, its));
  return join(each, ';');
}

std::string Health::complaint_of(const GpuUuid& gpu, const GpuState& its) const {
  return name_of(gpu) + (its.condition == GpuCondition::lost ? " is lost: " : " has failed: ") + its.fault;
}

void Health::drain(Client& client, const DrainGpus& request) {
  const std::string_view names(request.gpus, strnlen(request.gpus, sizeof request.gpus));
  const std::string_view reason(request.reason, strnlen(request.reason, sizeof request.reason));
  GpuNames gpus;
  if (const std::string wrong = parse_gpu_names(names, gpus); !wrong.empty())
    return client.connection().refuse(wrong);
  if (const std::string unknown = its_.administration.unknown_gpu(gpus); !unknown.empty())
    return client.connection().refuse("no GPU " + unknown + " here");
  const std::string who =
      "pid " + std::to_string(client.peer().pid) + ", uid " + std::to_string(client.peer().uid);
  const bool drained = request.drained != 0;
  const std::string why = reason.empty() || reason == "-" ? "drained" : text_of(word_of(reason));
  for (const Snapshot::Gpu& gpu : its_.core.core().snapshot().gpus) {
    if (!gpus.has(gpu.number, gpu.uuid)) continue;
    log::info(who + (drained ? ": drains " : ": no longer drains ") + name_of(gpu.uuid) +
              (drained ? ": " + why : ""));
    set_drained(gpu.uuid, drained ? std::optional(why) : std::nullopt);
  }
  client.send(DrainReply{.done = 1});
}

// If an administrator ends the drain of a failing GPU, the GPU counts as healthy again. A lost GPU stays
// lost.
void Health::set_drained(const GpuUuid& gpu, const std::optional<std::string>& reason) {
  GpuState& its = states_[gpu];
  its.drain = reason;
  if (!reason && its.condition == GpuCondition::failing) {
    its.condition = GpuCondition::healthy;
    its.fault.clear();
  }
  record(gpu);
  sync(gpu);
}

void Health::record(const GpuUuid& gpu) {
  const GpuState& its = states_[gpu];
  its_.journal.record(GpuRecord{.gpu = gpu,
                                .condition = static_cast<std::uint32_t>(its.condition),
                                .fault = word_of(its.fault),
                                .drain = its.drain ? word_of(*its.drain) : "-"});
  its_.journal.flush();
}

// "GPU 1 (GPU-...)", or only the UUID if the arbiter has not found the GPU yet.
std::string Health::name_of(const GpuUuid& gpu) const {
  const Snapshot state = its_.core.core().snapshot();
  const Snapshot::Gpu* known = state.find(gpu);
  return known == nullptr ? format_gpu(gpu)
                          : "GPU " + std::to_string(known->number) + " (" + format_gpu(gpu) + ")";
}

void Health::note_gone(const TenantInfo& tenant, const GpuUuid& gpu) {
  const Nanoseconds now = its_.system.now();
  while (!gone_.empty() && (gone_.size() >= kMostGone || now - gone_.front().gone > kDiedOfIt))
    gone_.pop_front();
  gone_.push_back(
      {.id = tenant.id, .label = tenant.label(), .job = tenant.name.job, .gpu = gpu, .gone = now});
}

bool Health::may_miss_a_loss() const {
  return !gone_.empty() && its_.system.now() - gone_.back().gone <= kDiedOfIt;
}

bool Health::may_miss_a_loss(const TenantInfo& tenant) const {
  return knows_better() && *looked_ <= tenant.last_seen;
}

// Returns the tenants that have a session on the GPU or have just left it. A tenant that is placed on the GPU
// and has had no session yet counts, too, because the environment of its processes names the GPU.
std::vector<Health::Guest> Health::guests_of(const GpuUuid& gpu) const {
  const Nanoseconds now = its_.system.now();
  std::vector<Guest> guests;
  const auto add = [&](const Guest& guest) {
    if (std::none_of(guests.begin(), guests.end(), [&](const Guest& other) { return other.id == guest.id; }))
      guests.push_back(guest);
  };
  const auto add_tenant = [&](const TenantInfo& tenant) {
    add({.id = tenant.id, .label = tenant.label(), .job = tenant.name.job, .gpu = gpu});
  };
  const Snapshot state = its_.core.core().snapshot();
  for (const Snapshot::Session& session : state.sessions)
    if (const TenantInfo* tenant = its_.tenants.find(session.tenant); session.gpu == gpu && tenant != nullptr)
      add_tenant(*tenant);
  for (const auto& [id, placement] : state.placements) {
    const TenantInfo* tenant = its_.tenants.find(id);
    const bool is_here = std::find(placement.gpus.begin(), placement.gpus.end(), gpu) != placement.gpus.end();
    if (is_here && tenant != nullptr && tenant->sessions == 0 && tenant->last_seen == Nanoseconds{})
      add_tenant(*tenant);
  }
  for (const Guest& guest : gone_)
    if (guest.gpu == gpu && now - guest.gone <= kDiedOfIt) add(guest);
  return guests;
}

}  // namespace sharedgpu
