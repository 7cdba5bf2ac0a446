// SPDX-License-Identifier: Apache-2.0
// Tells Slurm what to do about this node and its jobs, by scontrol.
//
// One order runs at a time, as a child with a timeout, and nothing waits for it. One that fails is tried
// again for a while: the controller may be starting again, or another one taking over. One thread, that of
// the event loop.
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
  std::chrono::milliseconds patience{60'000};  // with one that runs
  std::chrono::milliseconds pause{10'000};     // before one that has failed is tried again
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
    std::string address;  // in numbers; empty where the host's names do not tell it
  };
  // The nodes of the job; none where Slurm does not tell them.
  void find_nodes(std::uint32_t job, std::function<void(const std::vector<Node>&)> found);
  // The jobs on the node that span nodes, have units, and have neither ended nor been suspended; none where
  // Slurm does not tell them.
  void find_jobs(const std::string& node, std::function<void(const std::vector<StartedJob>&)> found);
  // The name of the node whose host (NodeHostName) is this one; empty where none or several have it; none
  // where Slurm does not tell.
  void find_own_name(std::function<void(const std::optional<std::string>&)> found);
  // The address of the node (NodeAddr) in numbers; empty where Slurm or the host's names do not tell it.
  void find_address(const std::string& node, std::function<void(const std::string&)> found);

  // Of this host, as Slurm calls it: as slurmd was told, else the host's own.
  static std::string node_name();
  // slurmd was told it.
  static bool knows_node_name();

 private:
  struct Order {
    std::string name;  // for the log
    std::vector<std::string> words;
    unsigned tries;     // that are left
    Nanoseconds due{};  // no earlier than then
    // Is called with what it has printed, or with nothing where it has failed. Null: that does not matter.
    std::function<void(const std::string&)> tell = {};
  };

  void add(Order order);
  void run_next();
  bool launch(Order& order);
  void ended();
  void try_again(Order order, const std::string& failure);

  const System& system_;
  const ScontrolTimes times_;
  asio::posix::stream_descriptor death_;  // the child's pidfd
  asio::steady_timer timeout_;
  asio::steady_timer pause_;
  pid_t child_ = -1;
  UniqueFd printed_;           // by the child, where that matters
  std::deque<Order> waiting_;  // the first runs while there is a child
};

}  // namespace sharedgpu
