// SPDX-License-Identifier: Apache-2.0
// The simulated cluster. Only cluster.cpp and cluster_jobs.cpp include this header.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "arbiter/core/core.h"
#include "arbiter/gang/desk.h"
#include "arbiter/gang/members.h"
#include "simulation/cluster.h"
#include "simulation/session.h"
#include "simulation/timeline.h"

namespace sharedgpu::simulation {

inline void must(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

class Cluster {
 public:
  explicit Cluster(const ClusterScenario& scenario);
  ClusterResult run();

 private:
  struct Process;
  struct Node {
    std::unique_ptr<Core> core;  // null while the node's arbiter is down
    std::vector<std::unique_ptr<Policy>> policies;
    unsigned life =
        0;  // number of stops of the arbiter; messages that were sent before the last stop are lost
    std::uint64_t alarms = 0;
    LeaseBook written;  // stands for the arbiter's ledger: the leases that it would contain
    Nanoseconds last_written{};
    std::optional<HeardNodes> heard;  // an arbiter keeps this in a file, so it outlives the arbiter
    std::optional<GangMembers> members;
    std::optional<GangDesk> desk;
    std::set<std::size_t> new_jobs;  // jobs that have begun since the arbiter started
    std::uint64_t wakes = 0;
    GpuUuid gpu;
    bool gpu_lost = false;
    Nanoseconds clock_off{};
  };
  struct Job {
    std::vector<Process*> processes;
    unsigned started = 0;  // number of kernels of each process that have run
    bool busy = false;     // the next kernel of each process is running
  };

  static TenantId tenant_of(std::size_t job) { return TenantId{job + 1}; }
  static std::uint32_t job_number(std::size_t job) { return static_cast<std::uint32_t>(job + 1); }
  Nanoseconds now() const { return timeline_.now(); }
  unsigned random(unsigned least, unsigned most) {
    return std::uniform_int_distribution<unsigned>(least, most)(random_);
  }
  Nanoseconds some(Nanoseconds most) { return most * random(1, 1000) / 1000; }

  // ---- arbiters ----
  void boot(unsigned node, Recovered recovered);
  void stop(unsigned node);
  void restart(unsigned node);
  void tell(unsigned node, const Event& event);
  void perform(unsigned node, const Actions& actions);
  void begin_epoch(unsigned node, std::uint64_t epoch);
  Process* find(unsigned node, SessionId id);

  // ---- gangs ----
  bool is_gang(std::size_t job) const {
    return scenario_.coordination == Coordination::gangs && scenario_.jobs[job].nodes.size() > 1;
  }
  bool linked(unsigned one, unsigned other) const {
    return one == other || cut_.count({std::min(one, other), std::max(one, other)}) == 0;
  }
  // Sends the messages of the gangs on this node (GangMessage), and passes the orders of gangs to the core.
  void tend(unsigned node);
  void tell_nodes(unsigned node, const GangDesk::Run& run);
  void tell_jobs(unsigned node, Nanoseconds asked);
  void post(unsigned from, unsigned to, const GangMessage& message);
  void read(unsigned node, unsigned from, const GangMessage& message);

  // ---- processes ----
  void arrive(std::size_t job, std::size_t member);
  void come_back(Process& process);
  template <class Body>
  void say(Process& process, const Body& body);
  void deliver(Process& process, const Message& message);
  void work(Process& process);
  void think(Process& process);
  void go_on(Process& process);
  void submit(Process& process);
  void compute(std::size_t job);
  void leave(Process& process);
  void give_up(std::size_t job);
  void fail(std::size_t job);
  void suspend(const Suspension& suspension, bool suspended);
  void lose_gpu(unsigned node);
  void watch_idle(Process& process);
  void check(unsigned node) const;

  const ClusterScenario scenario_;
  std::mt19937_64 random_;
  Timeline timeline_;
  std::vector<Node> nodes_;
  std::vector<Job> jobs_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::set<std::pair<unsigned, unsigned>> cut_;    // links that are down
  std::set<std::size_t> suspended_;                // jobs that Slurm has suspended
  std::map<std::uint32_t, GangCommand> commands_;  // the last command of each job's coordinator
  std::uint64_t last_session_ = 0;
  std::size_t left_ = 0;  // jobs that have not ended
  ClusterResult result_;
};

struct Cluster::Process final : Session, simulation::Process {
  Cluster* cluster = nullptr;
  std::size_t job = 0;
  unsigned node = 0;
  std::size_t member = 0;
  bool here = false;  // the process has begun and has not ended
  bool attached = false;
  bool working = false;  // the process's memory was granted; processes of a job work only together
  bool waiting = false;  // the process waits at the gate
  bool lonely = false;   // the process waits until all processes of its job are working
  bool full = false;     // the process may submit no further kernel before one of its kernels has ended
                         // (ClusterJob::ahead)
  bool thinking = false;
  std::uint64_t asking = 0;  // the request for memory that has no answer yet
  std::uint64_t requests = 0;
  Bytes granted;  // the process's memory before the request `asking`
  unsigned submitted = 0;
  unsigned done = 0;
  Nanoseconds waiting_since{};
  Nanoseconds idle_since{};
  Nanoseconds to_arbiter{},
      from_arbiter{};  // the arrival times of the latest messages; messages do not overtake each other
  unsigned idle_watch = 0;

  Nanoseconds drain(Session&, MessageType) override {
    return submitted > done ? std::chrono::milliseconds(1) : Nanoseconds{};
  }
  Nanoseconds submit_once(Session&) override {
    if (waiting && asking == 0 && missing() == Bytes{}) {
      waiting = false;
      cluster->submit(*this);
    }
    return std::chrono::microseconds(100);
  }
  bool waits(const Session&) const override { return waiting; }
};

}  // namespace sharedgpu::simulation
