// SPDX-License-Identifier: Apache-2.0
// Tells Slurm what to do about this node and its jobs, by scontrol.
//
// One command runs at a time, as a child with a timeout, and nothing waits for it. One thread, that of the
// event loop.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "arbiter/daemon/system.h"

namespace sharedgpu {

class Scontrol {
 public:
  Scontrol(asio::io_context& loop, const System& system, std::chrono::milliseconds timeout = kTimeout);
  ~Scontrol();
  Scontrol(const Scontrol&) = delete;
  Scontrol& operator=(const Scontrol&) = delete;

  void drain_node(const std::string& reason);
  void requeue(std::uint32_t job);
  // The address of the node, NodeAddr; empty: Slurm has not told. `found` is called later.
  void find_address(const std::string& node, std::function<void(const std::string&)> found);

  // Of this host, as Slurm calls it: as slurmd was told, else the host's own.
  static std::string node_name();

 private:
  static constexpr std::chrono::seconds kTimeout{60};  // a controller may just be starting again
  using Words = std::vector<std::string>;
  struct Command {
    Words words;
    std::function<void(const std::string&)> tell;  // of what it has printed; null: that does not matter
  };

  void add(Command command);
  void run_next();
  bool launch(Command& command);
  void ended();

  const System& system_;
  const std::chrono::milliseconds patience_;
  asio::posix::stream_descriptor death_;  // the child's pidfd
  asio::steady_timer timeout_;
  pid_t child_ = -1;
  UniqueFd printed_;             // by the child, where that matters
  std::deque<Command> waiting_;  // the first runs while there is a child
};

}  // namespace sharedgpu
