// SPDX-License-Identifier: Apache-2.0
// The events of a simulated cluster (cluster.h): jobs, outages, suspensions, and lost GPUs.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu::simulation {

// The ways in which jobs on several nodes can get their turns.
enum class Coordination : std::uint8_t {
  none,    // each node decides by itself
  epochs,  // each node decides by itself; all nodes use one order of jobs, which changes with each clock
           // epoch
  gangs,   // coordinators (arbiter/gang/) give turns on all nodes at once
};

struct ClusterJob {
  std::vector<unsigned> nodes;  // the job has one process on each of these nodes
  Bytes footprint;              // footprint of each process
  unsigned iterations = 100;
  Nanoseconds thinks{};    // mean time on the CPU before each submission
  Nanoseconds computes{};  // mean duration of a kernel after all processes have submitted it
  unsigned ahead = 1;      // number of kernels that a process submits before it waits for the first one
  Nanoseconds starts{};
  Nanoseconds spread = std::chrono::milliseconds(200);  // the processes of the job begin at random times
                                                        // within this time after `starts`
  unsigned grows_at = 0;  // the iteration in which each process allocates `growth` more; zero: never
  Bytes growth;
};

// An arbiter, or the link between two nodes, is down for a while.
struct Outage {
  Nanoseconds at{};
  Nanoseconds lasts{};
  unsigned node = 0;
  std::optional<unsigned> peer;  // if set, the link between `node` and `peer` is down; otherwise, the arbiter
                                 // of `node` is down
};

// Slurm announces that it suspends a job's processes, on one or all nodes of the job, and resumes them later.
// Suspended processes can drain.
struct Suspension {
  Nanoseconds at{};
  Nanoseconds lasts{};
  std::size_t job = 0;
  std::optional<unsigned> member;  // nullopt: on all nodes of the job
};

// The GPU of a node is lost, and comes back after a second. If a job has a process on that GPU, the job
// fails, and Slurm ends its other processes ten seconds later.
struct LostGpu {
  Nanoseconds at{};
  unsigned node = 0;
};

struct ClusterScenario {
  std::uint64_t seed = 0;
  unsigned nodes = 2;
  Bytes capacity = mebibytes(100);
  std::vector<ClusterJob> jobs;
  std::vector<Outage> outages;
  std::vector<Suspension> suspensions;
  std::vector<LostGpu> lost_gpus;
  Coordination coordination = Coordination::gangs;
  std::string policy = "round-robin";
  Nanoseconds turn = std::chrono::seconds(1);
  Nanoseconds epoch = std::chrono::seconds(1);       // length of an epoch, for Coordination::epochs
  Nanoseconds skew{};                                // maximum error of the nodes' clocks
  Nanoseconds delay = std::chrono::milliseconds(1);  // maximum delay of a message between nodes
  unsigned lost = 0;                                 // lost messages between nodes, per thousand
  Bytes copied_per_ms = mebibytes(1);
  Nanoseconds limit = std::chrono::hours(1);
};

// Returns a random scenario: two or more jobs, each of which runs on two to four nodes, perhaps further jobs
// on one node each, and `outages` outages of arbiters and links. The jobs on a node may not fit together on
// its GPU.
ClusterScenario random_cluster(std::uint64_t seed, unsigned nodes, unsigned outages = 0);

// For each link that goes down in the scenario, adds `restarts` restarts, each of the arbiter at one of the
// two ends of the link. Each restart begins within forty seconds after the link goes down, and takes three
// seconds at most.
void add_restarts(ClusterScenario& scenario, unsigned restarts);

// Returns an upper bound for the time that a process waits for its turn while no arbiter and no link is down.
// The bound is the sum of two turns of each job, and of one timeout for a process that cannot drain because
// it lacks memory. Each other job may have two turns before this job: a turn that began before this job
// asked, and a turn that was offered while another job had waited longest. A turn includes the time to
// restore and evict all memory, and the work that is on the GPU when the turn ends.
Nanoseconds longest_wait(const ClusterScenario& scenario);

}  // namespace sharedgpu::simulation
