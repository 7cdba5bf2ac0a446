// SPDX-License-Identifier: Apache-2.0
// A cluster in a modelled time: nodes with a core each, jobs on one or several of them, and the coordinators
// of their gangs.
//
// The processes of a job work in lockstep, as with NCCL: a kernel ends only after each of them has submitted
// as many. Nodes have one GPU each. Sessions behave (session.h); arbiters may be away for a while, and so may
// links.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "arbiter/core/core.h"
#include "arbiter/gang/desk.h"
#include "arbiter/gang/members.h"
#include "simulation/session.h"
#include "simulation/timeline.h"

namespace sharedgpu::simulation {

// What makes the turns of a job that spans nodes.
enum class Coordination : std::uint8_t {
  none,    // each node by itself
  epochs,  // each node by itself, by the same order of jobs, which changes with each epoch of the clock
  gangs,   // arbiter/gang/
};

struct ClusterJob {
  std::vector<unsigned> nodes;  // a process on each
  Bytes footprint;              // of each process
  unsigned iterations = 100;
  Nanoseconds thinks{};    // before each submission
  Nanoseconds computes{};  // each kernel, after all have submitted it
  unsigned ahead = 1;      // kernels that a process submits before it waits for the first of them
  Nanoseconds starts{};
  Nanoseconds spread = std::chrono::milliseconds(200);  // its processes come within that time
  unsigned grows_at = 0;  // in this iteration each process allocates more; zero: never
  Bytes growth;
};

// An arbiter is away from then on for so long, or a link is.
struct Outage {
  Nanoseconds at{};
  Nanoseconds lasts{};
  unsigned node = 0;
  std::optional<unsigned> peer;  // the link to this node; none: the arbiter
};

// Slurm announces on one node of a job, or on all, that its processes are suspended, and lets them go on
// later. They drain meanwhile.
struct Suspension {
  Nanoseconds at{};
  Nanoseconds lasts{};
  std::size_t job = 0;
  std::optional<unsigned> member;  // none: all
};

// The GPU of a node is lost, and comes back after a second. The jobs that have a process on it fail: Slurm
// ends their other processes ten seconds later.
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
  Nanoseconds epoch = std::chrono::seconds(1);       // of Coordination::epochs
  Nanoseconds skew{};                                // of the clocks, at most
  Nanoseconds delay = std::chrono::milliseconds(1);  // of a letter between nodes, at most
  unsigned lost = 0;                                 // letters, of a thousand
  Bytes copied_per_ms = mebibytes(1);
  Nanoseconds limit = std::chrono::hours(1);
};

struct ClusterResult {
  struct Job {
    std::optional<Nanoseconds> took;  // none: it did not end within the limit
    bool refused = false;             // it ended for want of memory
    bool failed = false;              // it lost a GPU
    unsigned iterations = 0;
    Nanoseconds longest_wait{};             // of one of its processes at the gate
    std::map<unsigned, Nanoseconds> lease;  // by node
    bool has_ended() const { return took || refused || failed; }
  };
  std::vector<Job> jobs;
  Nanoseconds took{};         // until all had ended
  std::uint64_t letters = 0;  // between arbiters, those of a node to itself included
  unsigned given_up = 0;      // gangs whose tenants on a node had turns by themselves for a while
  unsigned turns = 0;         // of gangs
  bool all_ended() const {
    return std::all_of(jobs.begin(), jobs.end(), [](const Job& job) { return job.has_ended(); });
  }
};

// A scenario with jobs on several nodes that conflict, and jobs on one node beside them; `outages` of
// arbiters and links in it.
ClusterScenario random_cluster(std::uint64_t seed, unsigned nodes, unsigned outages = 0);

// The longest time for which a process waits for its turn, where no arbiter and no link is away: a turn of
// each other job, twice, since one may have begun as the job asks, and one be offered before the job is the
// eldest; and once the patience with a process that cannot drain for want of memory. A turn takes a handoff
// of all memory in and out, and what is on the GPU at its end.
Nanoseconds longest_wait(const ClusterScenario& scenario);

// Throws std::logic_error where something breaks that must always hold.
ClusterResult simulate(const ClusterScenario& scenario);

}  // namespace sharedgpu::simulation
