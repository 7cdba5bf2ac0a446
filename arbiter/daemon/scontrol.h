// SPDX-License-Identifier: Apache-2.0
// Runs Slurm's commands: scontrol drains this node and requeues jobs; scontrol and squeue show nodes,
// addresses and jobs.
//
// One command runs at a time, in a child process with a timeout; no function waits for it. A drain or requeue
// that fails is tried again for a while, since the controller may be restarting, or a backup controller may
// be taking over. Event-loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "arbiter/daemon/system.h"
#include "arbiter/gang/apart_line.h"
#include "protocol/units.h"

namespace sharedgpu {

struct ScontrolTimes {
  std::chrono::milliseconds patience{60'000};  // a command that runs longer is killed
  std::chrono::milliseconds pause{10'000};     // pause before a failed command is tried again
};

class Scontrol {
 public:
  Scontrol(asio::io_context& loop, const System& system, ScontrolTimes times = {});
  ~Scontrol();
  Scontrol(const Scontrol&) = delete;
  Scontrol& operator=(const Scontrol&) = delete;

  void drain_node(const std::string& reason);
  void requeue(std::uint32_t job);
  struct Node {
    std::string name;
    std::string address;  // numeric; empty if the node's address cannot be resolved
  };
  // Each find function asks Slurm, and calls `found` once with the answer. find_own_name() finds the name of
  // the node whose NodeHostName is this host. The name is empty if no node or more than one node matches.
  // Repeats the question until Slurm answers. Each try, and the pause before it, may delay other commands of
  // this object.
  void find_own_name(std::function<void(const std::string&)> found);
  // find_nodes() finds the nodes of the job. The list is empty if Slurm does not answer or does not know the
  // job.
  void find_nodes(std::uint32_t job, std::function<void(const std::vector<Node>&)> found);
  // find_jobs() finds the jobs on the node that span several nodes, have units, and are neither ended nor
  // suspended. The list is empty if Slurm does not answer.
  void find_jobs(const std::string& node, std::function<void(const std::vector<StartedJob>&)> found);
  // find_address() finds the numeric address of the node (NodeAddr). The address is empty if Slurm does not
  // answer or does not know the node's address, or if the address cannot be resolved.
  void find_address(const std::string& node, std::function<void(const std::string&)> found);
  // find_private_data() finds PrivateData of slurm.conf, such as "none" or "jobs,usage"; "none" if this host
  // has no scontrol. The text is empty if Slurm does not answer.
  void find_private_data(std::function<void(const std::string&)> found);

  // Returns Slurm's name of this node (SLURMD_NODENAME); if that is not set, the host's name.
  static std::string node_name();
  // Returns true if SLURMD_NODENAME is set.
  static bool knows_node_name();

 private:
  struct Order {
    std::string name;  // for the log
    std::vector<std::string> words;
    unsigned tries;     // number of tries left
    Nanoseconds due{};  // the command does not start before this time
    // Called with the output of the command, or with an empty text if the last try failed. Null: the output
    // is not needed.
    std::function<void(const std::string&)> tell = {};
  };

  void add(Order order);
  void run_next();
  std::string launch(Order& order);
  void ended();
  bool try_again(Order order, const std::string& failure);

  const System& system_;
  const ScontrolTimes times_;
  asio::posix::stream_descriptor death_;  // the child's pidfd
  asio::steady_timer timeout_;
  asio::steady_timer pause_;
  pid_t child_ = -1;
  UniqueFd printed_;           // the child's output; empty if the output is not needed
  std::deque<Order> waiting_;  // while a child runs, the child executes the first order
};

}  // namespace sharedgpu
