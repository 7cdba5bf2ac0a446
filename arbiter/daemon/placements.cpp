// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/placements.h"

#include <algorithm>
#include <map>
#include <vector>

#include "arbiter/daemon/log.h"
#include "protocol/gpu_names.h"

namespace sharedgpu {
namespace {

// A list with one GPU that does not exist. A process that sees only this GPU gets the driver's own error.
GpuList no_gpu() {
  GpuList list;
  list.count = 1;
  return list;
}

GpuList list_of(const std::vector<GpuUuid>& gpus, unsigned known) {
  GpuList list;
  list.known = known;
  for (const GpuUuid& gpu : gpus)
    if (list.count < GpuList::kMost) list.gpu[list.count++] = gpu;
  return list;
}

}  // namespace

Placements::Placements(asio::io_context& loop, const System& system, CoreRunner& core,
                       Administration& administration, Journal& journal, const Tenants& tenants,
                       Complaints& complaints, std::function<void(TenantId)> unheld)
    : system_(system),
      core_(core),
      administration_(administration),
      journal_(journal),
      tenants_(tenants),
      complaints_(complaints),
      holders_(loop, system, std::move(unheld)) {}

GpuList Placements::place(const Peer& asker, TenantId tenant, const Demand& demand) {
  core_.handle(Place{.tenant = tenant, .demand = demand});
  administration_.partitions_may_have_changed();
  const Snapshot state = core_.core().snapshot();
  unsigned found = 0;
  unsigned open = 0;
  unsigned known = 0;
  for (const Snapshot::Gpu& gpu : state.gpus) {
    found += gpu.learned ? 0 : 1;
    open += is_open_to(gpu, demand) ? 1 : 0;
    known += takes(gpu, demand) ? 1 : 0;
  }
  const auto placed = state.placements.find(tenant);
  const bool is_placed = placed != state.placements.end();
  GpuList list;
  if (is_placed) list = list_of(gpus_seen(state, placed->second, demand), known);
  if (found > 0 && list.count == 0) {
    complaints_.add(asker.account, Cause::unplaced,
                    tenants_.label(tenant) + ": not placed: " +
                        (open == 0 ? "it can open none of the GPUs here"
                                   : "all GPUs here that it can open have failed or are drained"));
    if (open > 0) list = no_gpu();
  }
  if (!is_placed) {
    if (open > 0) hold_unplaced(asker, tenant);
    return list;
  }

  hold(asker, {.tenant = tenant, .units = placed->second.units, .gpus = list_of(placed->second.gpus, known)});
  may_have_ended(tenant);  // ends the placement if, for lack of a descriptor, hold() has added no holder
  log::debug(tenants_.label(tenant) + ": may see " + format_gpus(list));
  return list;
}

void Placements::hold_unplaced(const Peer& asker, TenantId tenant) {
  hold(asker, {.tenant = tenant, .units = 0, .gpus = {}});
}

// Adds the process as a holder. Records the holder in the ledger, so that the next arbiter keeps the
// placement while the process is alive.
void Placements::hold(const Peer& asker, PlaceRecord place) {
  const ProcessName process = asker.process();
  place.pid = process.pid;
  place.started = process.started;
  journal_.record(place);
  journal_.flush();
  holders_.add(place.tenant, process, system_.duplicate(asker.pidfd.get()));
}

void Placements::restore(TenantId tenant, const ProcessName& holder) { holders_.restore(tenant, holder); }

void Placements::may_have_ended(TenantId id) {
  const TenantInfo* tenant = tenants_.find(id);
  if (!is_held(id) && (tenant == nullptr || tenant->sessions == 0)) core_.handle(Unplace{.tenant = id});
  administration_.partitions_may_have_changed();
}

void Placements::forget(TenantId tenant) {
  holders_.forget(tenant);
  core_.handle(Unplace{.tenant = tenant});
}

std::uint32_t put_before(const Snapshot& state, DeviceSet whole, GpuList& gpus) {
  std::map<unsigned, GpuUuid> found;  // ordered by GPU number
  for (const Snapshot::Gpu& gpu : state.gpus)
    if (gpu.minor && whole.has(*gpu.minor)) found[gpu.number] = gpu.uuid;
  if (gpus.count == 0 || found.size() != whole.count() || found.size() >= GpuList::kMost) return 0;
  std::vector<GpuUuid> all;
  for (const auto& [number, uuid] : found) all.push_back(uuid);
  for (std::uint32_t i = 0; i < gpus.count; ++i)
    if (std::find(all.begin(), all.end(), gpus.gpu[i]) == all.end()) all.push_back(gpus.gpu[i]);
  gpus = list_of(all, gpus.known);
  return static_cast<std::uint32_t>(found.size());
}

}  // namespace sharedgpu
