// SPDX-License-Identifier: Apache-2.0
// The words between the arbiters of a job that spans nodes. Plain values.
//
// The tenants of such a job, one on each of its nodes, are a gang: they have their turns at the same time,
// since their processes may wait for each other on the GPUs. One arbiter coordinates
// (arbiter/gang/coordinator.h) and sends orders; the arbiter of each node, a member of the gang, sends
// reports. An order and a report are whole states: one that is lost or comes twice does no harm, since the
// next one says all.
#pragma once

#include <cstdint>
#include <optional>

#include "arbiter/core/model/phase.h"
#include "protocol/units.h"

namespace sharedgpu {

enum class GangCommand : std::uint8_t {
  wait,   // it has no turn; what it had has ended on all nodes
  enter,  // every member gives it a place in its running set, and has its memory restored
  run,    // the memory of all is resident: gates open
  leave,  // gates close; its memory stays where it is until all members have drained
};

struct GangOrder {
  std::uint64_t seen = 0;  // the number of the member's last report that this order follows from
  GangCommand command = GangCommand::wait;
  bool possible = false;  // all members are in contact, so that a turn can begin
  bool apart = false;     // a node is silent for so long, or not known, that each is on its own
  bool stopped = false;   // on some node it is stopped or suspended: no turn can begin
  bool wanted = false;    // a session waits for the GPU, on some node
  bool idle = false;      // the sessions of all nodes are
  bool settled = false;   // no member's footprint has grown for a while in its turn
  bool urgent = false;    // entering: another member cannot drain without this one
  bool drains = false;    // leaving: a member has not drained
  bool grows = false;     // leaving: a member needs more memory for that
  bool lacks = false;     // leaving: a member has no place, so that those without a lease can help nobody
  // So often has this member, which had drained, been told to let its sessions submit once more.
  std::uint64_t steps = 0;
  Nanoseconds since{};  // since when it waits, of the coordinator's clock. The same for all members

  bool operator==(const GangOrder&) const = default;
};

struct GangReport {
  std::uint64_t number = 0;  // counts this member's reports
  Phase phase = Phase::out;
  // Its turn can begin here at once. The member stands by this until an order has seen that it no longer says
  // so.
  bool offers = true;
  bool ends = false;        // its turn has to end, or cannot begin: it is stopped or suspended
  bool ready = true;        // entering: all memory is resident
  bool drained = true;      // out or leaving: nothing of it runs on the GPU, and nothing will before an order
  std::uint64_t steps = 0;  // of the order's, those that it has carried out
  bool present = false;     // sessions of it have a GPU; a member without them has nothing to wait for
  bool wants = false;
  bool idle = true;
  bool settled = true;
  bool grows = false;  // leaving: it cannot drain without more memory

  bool operator==(const GangReport&) const = default;
};

// Event: the coordinator of the tenant's gang has sent an order. None: there is no coordinator, and the
// tenant has its turns on this node by itself until there is an order.
struct GangOrdered {
  TenantId tenant;
  std::optional<GangOrder> order;
  Nanoseconds started{};  // without an order: when Slurm has started the job; zero: it is not known
};

// Action: for the coordinator of the tenant's gang.
struct TellGang {
  TenantId tenant;
  GangReport report;
};

}  // namespace sharedgpu
