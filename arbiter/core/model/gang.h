// SPDX-License-Identifier: Apache-2.0
// The orders and reports that the arbiters of a job that spans nodes send to each other. Plain values.
//
// The tenants of such a job, one on each of its nodes, are a gang. They have their turns at the same time,
// since their processes may wait for each other on the GPUs. One arbiter coordinates the gang
// (arbiter/gang/coordinator.h) and sends orders; the arbiter of each node, a member of the gang, sends
// reports. Each order and each report contains the whole state, so a lost or repeated message does no harm.
#pragma once

#include <cstdint>
#include <optional>

#include "arbiter/core/model/phase.h"
#include "protocol/units.h"

namespace sharedgpu {

enum class GangCommand : std::uint8_t {
  wait,   // the gang has no turn, and its last turn has ended on all nodes
  enter,  // every member takes its tenant into the running set, and has the tenant's memory restored
  run,    // all members are ready (GangReport::ready): gates open
  leave,  // gates close; memory stays where it is until all members have drained
};

struct GangOrder {
  std::uint64_t seen = 0;  // number of the last report that the coordinator has received from this member
  GangCommand command = GangCommand::wait;
  bool possible = false;  // all members are in contact; otherwise no turn can begin
  bool apart = false;     // a node is unknown or has been silent for long: each node has independent turns
  bool stopped = false;   // the tenant is stopped or suspended on some node, so no turn can begin
  bool wanted = false;    // a session waits for the GPU, on some node
  bool idle = false;      // the sessions of all nodes are idle
  bool settled = false;   // each member's footprint has once not grown for a while in a turn of the gang
  bool urgent = false;    // while entering: a member still drains, and may need submissions of the others
  bool drains = false;    // a member has not drained (GangReport::drained)
  bool grows = false;     // while leaving: a member needs more memory to drain
  bool lacks = false;  // while leaving: a member is in no running set, so the other members cannot drain by
                       // submitting more work
  // The number of steps that the coordinator has ordered from this member, counted over all turns. In a step,
  // the member lets its drained sessions submit once more.
  std::uint64_t steps = 0;
  Nanoseconds since{};  // start of the gang's wait, by the coordinator's clock; the same for all members

  bool operator==(const GangOrder&) const = default;
};

struct GangReport {
  std::uint64_t number = 0;  // number of this report, counted by the member
  Phase phase = Phase::out;
  // The gang's turn can begin on this node at once. The member must keep the offer until GangOrder::seen
  // shows that the coordinator has received a report with `offers` false.
  bool offers = true;
  bool ends = false;    // the turn has to end, or cannot begin since the tenant is stopped or suspended
  bool ready = true;    // the tenant runs, or is entering and nothing on this node keeps its gates closed
  bool drained = true;  // while out or leaving: the tenant has drained and submits nothing without an order,
                        // or its lease was revoked without an answer from its processes
  std::uint64_t steps = 0;  // the part of GangOrder::steps that the member has carried out or need not carry
                            // out any more
  bool present = false;     // the tenant has sessions on a GPU; nobody waits for a member without sessions
  bool wants = false;
  bool idle = true;
  bool settled = true;
  bool grows = false;  // while leaving: the tenant cannot drain without more memory

  bool operator==(const GangReport&) const = default;
};

// Event: the coordinator of the tenant's gang has sent an order. Without an order: the gang is apart (its
// nodes do not reach each other), and the tenant has independent turns on this node until an order comes.
struct GangOrdered {
  TenantId tenant;
  std::optional<GangOrder> order;
  Nanoseconds started{};  // without an order: when Slurm started the job; zero: unknown
};

// Action: send the report to the coordinator of the tenant's gang.
struct TellGang {
  TenantId tenant;
  GangReport report;
};

}  // namespace sharedgpu
