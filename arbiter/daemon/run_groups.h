// SPDX-License-Identifier: Apache-2.0
// The memory control groups of runs. A run that an administrator or a batch system starts gets a control
// group of its own, if a limit on its host memory is stated and no other control group confines it. The
// group's limit is the sum of the host memory of the run's program and of its units. So the Linux kernel
// ensures that the run does not take the memory of other jobs.
//
// The group of run 7 is PARENT/run_7, with the PARENT of CgroupParent=. A process enters the run's group
// before it starts a program, or at the latest with its first session. Its children start in the group. A
// process stays in its current group if it is in a step of Slurm, or if root has set a limit on this group.
// Examples of such groups are those of another batch system's jobs and of other runs. The highest host memory
// of each group is recorded in the ledger. A group is removed when its run has ended and no process is left
// in it. After a restart, the arbiter finds the groups by their names.
//
// A run starts even if its group cannot be made; its host memory is then not limited, and the log says why.
// Event-loop thread only; slow calls run on a second thread.
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
  // The maximum numbers of processes of one user that are moved in a burst, and per second on average.
  // Processes of root are not limited.
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

  // Records the highest host memory of the groups that an earlier arbiter made. Call before the ended tenants
  // are forgotten.
  void record_peaks();
  // Takes over the groups that an earlier arbiter made.
  void restore();

  // The type of a callback that is called once, with true if the process is in the group. If no move is
  // needed or allowed, make() or enter() makes this call before it returns.
  using Done = std::function<void(bool inside)>;

  // Makes the tenant's group and moves the process into it. Makes no group if the process must stay in its
  // current group.
  void make(TenantInfo& tenant, Bytes limit, const Peer& peer, Done done);
  // Returns true if the tenant has a group and the process is outside of it, so that enter() may move the
  // process.
  bool is_outside(const TenantInfo& tenant, const Peer& peer) const;
  // Returns true if the limit on moves of the process's user permits another move now, and counts the move.
  bool may_enter(const Peer& peer) {
    return peer.account == 0 || moves_.take(peer.account, its_.system.now());
  }
  // Moves the process into the tenant's group, unless another group confines it.
  void enter(const TenantInfo& tenant, const Peer& peer, Done done);
  // Call when the tenant has ended. Records the highest host memory of the tenant's group, and removes the
  // group when it is empty.
  void ended(const TenantInfo& tenant);

 private:
  struct Row {
    bool ended = false;
    bool told = false;        // the log says why the group cannot be removed
    bool told_stays = false;  // the log says why a process of the run does not enter the group
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
  const std::unique_ptr<Aside> aside_;  // declared last, because its work uses the members above
};

}  // namespace sharedgpu
