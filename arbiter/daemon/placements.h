// SPDX-License-Identifier: Apache-2.0
// On which GPUs tenants are placed, and for how long: as long as a process lives that was told of it, or a
// session. Whoever dies, nothing is left to be cleared up.
//
// One thread, that of the event loop.
#pragma once

#include <asio/io_context.hpp>
#include <functional>

#include "arbiter/core/placement.h"
#include "arbiter/daemon/administration.h"
#include "arbiter/daemon/core_runner.h"
#include "arbiter/daemon/journal.h"
#include "arbiter/daemon/keepers.h"
#include "arbiter/daemon/peers.h"
#include "arbiter/daemon/system.h"
#include "arbiter/ledger/tenants.h"

namespace sharedgpu {

class Placements {
 public:
  // `unheld` is called when the last process that holds a tenant's placement has ended.
  Placements(asio::io_context& loop, const System& system, CoreRunner& core, Administration& administration,
             Journal& journal, const Tenants& tenants, std::function<void(TenantId)> unheld);

  // Those of the tenant's GPUs that the asking process is to see, chosen now if there are none. The process
  // holds the placement.
  GpuList place(const Peer& asker, TenantId tenant, const Demand& demand);
  // The process holds the tenant, which is not placed: the user chose the GPUs.
  void hold_unplaced(const Peer& asker, TenantId tenant);
  // As the ledger tells it.
  void restore(TenantId tenant, const ProcessName& holder);

  bool is_held(TenantId tenant) const { return holders_.any(tenant); }
  // It ends where nobody knows of it any more.
  void may_have_ended(TenantId tenant);
  // The tenant has ended, whoever lives of those who hold it.
  void forget(TenantId tenant);

 private:
  void hold(const Peer& asker, PlaceRecord place);

  const System& system_;
  CoreRunner& core_;
  Administration& administration_;
  Journal& journal_;
  const Tenants& tenants_;
  Keepers holders_;
};

// Puts the GPUs that a step holds whole before the shared ones. Returns how many, or 0 where the list stays
// as it is.
std::uint32_t put_before(const Snapshot& state, DeviceSet whole, GpuList& gpus);

}  // namespace sharedgpu
