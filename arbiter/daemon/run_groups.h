// SPDX-License-Identifier: Apache-2.0
// The memory control groups of runs. A run that a batch system without groups of its own starts, or an
// administrator, gets a group with a limit: the host memory of its program and that of its units together. So
// the kernel ensures that neither takes the memory of others.
//
// The group of run 7 is PARENT/run_7 (CgroupParent=). Processes enter it before they start a program, or at
// the latest with their first session; the processes that they start are born in it. A process stays where it
// is if a group with a limit, made by root, holds it already: that of a Slurm step, of another batch system,
// or of another run. The highest use goes into the ledger. A group is removed when its run has ended and no
// process is left in it. After a restart, groups are found by their names.
//
// Nothing here keeps a run from running: without a group it is as free as before, and the log says why.
// Event-loop thread only; whatever may take long runs beside the loop.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arbiter/daemon/cgroups.h"
#include "arbiter/daemon/complaints.h"
#include "arbiter/daemon/journal.h"
#include "arbiter/daemon/peers.h"
#include "arbiter/daemon/system.h"
#include "arbiter/daemon/token_bucket.h"
#include "arbiter/ledger/figure_book.h"
#include "arbiter/ledger/tenants.h"

namespace sharedgpu {

class RunGroups {
 public:
  // The processes of one user that may be moved at once, and per second. Root's are not limited.
  static constexpr double kMovesAtOnce = 512;
  static constexpr double kMovesASecond = 10;

  struct Parts {
    asio::io_context& loop;
    const System& system;
    const std::string parent;  // CgroupParent=
    Tenants& tenants;
    FigureBook& figures;
    Journal& journal;
    Complaints& complaints;
  };
  explicit RunGroups(const Parts& parts);

  // Records the highest use of the groups that an earlier arbiter made. Call it before the ended tenants are
  // forgotten.
  void record_peaks();
  // Takes over the groups that an earlier arbiter made.
  void restore();

  // Called once: whether the process is in the group. At once, if nothing has to be moved.
  using Done = std::function<void(bool inside)>;

  // Makes the tenant's group and moves the process into it.
  void make(TenantInfo& tenant, Bytes limit, const Peer& peer, Done done);
  // True if enter() would move the process: the tenant has a group, and the process is outside.
  bool is_outside(const TenantInfo& tenant, const Peer& peer) const;
  // True if the user of the process may have another process moved now, which is then counted.
  bool may_enter(const Peer& peer) {
    return peer.account == 0 || moves_.take(peer.account, its_.system.now());
  }
  // Moves the process into the tenant's group, unless another group confines it.
  void enter(const TenantInfo& tenant, const Peer& peer, Done done);
  // The tenant has ended: its highest use is recorded, and its group removed when it is empty.
  void ended(const TenantInfo& tenant);

 private:
  struct Row {
    bool ended = false;
    bool told = false;        // the log says why it cannot be removed
    bool told_stays = false;  // the log says why a process of the run does not enter it
  };
  struct Look;

  std::string group_of(TenantId tenant) const { return its_.parent + "/run_" + std::to_string(tenant.value); }
  std::optional<MemoryGroup> place_of(const Peer& peer) const;
  bool is_confined(const MemoryGroup& place) const;
  bool may_move(TenantId tenant, const Peer& peer, const std::optional<MemoryGroup>& place);
  void tell(const Peer& peer, const std::string& what) const;
  void record_peak(TenantId tenant, std::optional<Bytes> peak);
  void look_soon();
  void look();
  void take(const std::vector<Look>& looks);

  const Parts its_;
  std::map<TenantId, Row> rows_;
  TokenBuckets<uid_t> moves_{kMovesAtOnce, kMovesASecond};
  asio::steady_timer timer_;
  bool is_looking_ = false;
  const std::unique_ptr<Aside> aside_;  // its work uses the members above
};

}  // namespace sharedgpu
