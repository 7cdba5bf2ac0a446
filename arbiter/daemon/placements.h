// SPDX-License-Identifier: Apache-2.0
// The placement of tenants on GPUs. A placement lasts as long as the tenant has a session or a holder
// (holders.h).
//
// Event-loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <functional>

#include "arbiter/core/placement.h"
#include "arbiter/daemon/administration.h"
#include "arbiter/daemon/complaints.h"
#include "arbiter/daemon/core_runner.h"
#include "arbiter/daemon/holders.h"
#include "arbiter/daemon/journal.h"
#include "arbiter/daemon/peers.h"
#include "arbiter/daemon/system.h"
#include "arbiter/ledger/tenants.h"

namespace sharedgpu {

class Placements {
 public:
  // `unheld` is called when the last holder of a tenant's placement has ended.
  Placements(asio::io_context& loop, const System& system, CoreRunner& core, Administration& administration,
             Journal& journal, const Tenants& tenants, Complaints& complaints,
             std::function<void(TenantId)> unheld);

  // Returns the tenant's GPUs that the process `asker` may see. If the tenant has no placement yet, chooses
  // the GPUs first. The process becomes a holder of the placement. If all GPUs that the process can open have
  // failed or are drained, returns one GPU that does not exist. If it can open none, returns an empty list.
  GpuList place(const Peer& asker, TenantId tenant, const Demand& demand);
  // Makes the process a holder of a tenant without a placement, for example because the user has chosen the
  // GPUs.
  void hold_unplaced(const Peer& asker, TenantId tenant);
  // Restores a holder recorded in the ledger.
  void restore(TenantId tenant, const ProcessName& holder);

  bool is_held(TenantId tenant) const { return holders_.any(tenant); }
  // Ends the placement if the tenant has neither holders nor sessions.
  void may_have_ended(TenantId tenant);
  // Forgets a tenant that has ended, even if some of its holders are alive.
  void forget(TenantId tenant);

 private:
  void hold(const Peer& asker, PlaceRecord place);

  const System& system_;
  CoreRunner& core_;
  Administration& administration_;
  Journal& journal_;
  const Tenants& tenants_;
  Complaints& complaints_;
  Holders holders_;
};

// Inserts the whole GPUs that Slurm allocated to a step into `gpus`, in front of the shared GPUs. Returns the
// number of inserted GPUs; 0 if the list is unchanged.
std::uint32_t put_before(const Snapshot& state, DeviceSet whole, GpuList& gpus);

}  // namespace sharedgpu
