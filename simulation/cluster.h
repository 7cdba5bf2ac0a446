// SPDX-License-Identifier: Apache-2.0
// Simulates a cluster in simulated time. Each node has the core of an arbiter. Jobs run on one or several
// nodes, and their gangs have coordinators.
//
// The processes of a job work in lockstep, as with NCCL: the n-th kernel of a process ends only after every
// process of the job has submitted its n-th kernel. Each node has one GPU. Sessions follow the protocol
// (session.h). Arbiters and links between nodes may fail and recover.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "simulation/cluster_scenario.h"

namespace sharedgpu::simulation {

struct ClusterResult {
  struct Job {
    std::optional<Nanoseconds> took;  // nullopt: the job did not end within the limit, was refused, or failed
    bool refused = false;             // the job ended because a request for memory was refused
    bool failed = false;              // the job lost a GPU
    unsigned iterations = 0;
    Nanoseconds longest_wait{};             // longest wait of a process at the gate
    std::map<unsigned, Nanoseconds> lease;  // time with a lease on each node
    bool has_ended() const { return took || refused || failed; }
  };
  std::vector<Job> jobs;
  Nanoseconds took{};          // time until all jobs had ended, or until the limit
  std::uint64_t messages = 0;  // messages between arbiters (GangMessage) that were sent, including messages
                               // of a node to itself and messages that were lost
  unsigned given_up = 0;  // number of times that a gang's tenant began to have turns on its node without the
                          // coordinator's orders
  unsigned turns = 0;     // turns of gangs
  bool all_ended() const {
    return std::all_of(jobs.begin(), jobs.end(), [](const Job& job) { return job.has_ended(); });
  }
};

// Throws std::logic_error if an invariant is violated.
ClusterResult simulate(const ClusterScenario& scenario);

}  // namespace sharedgpu::simulation
