// SPDX-License-Identifier: Apache-2.0
// Ends processes that keep other tenants from a GPU: reports the reason to the process, sends SIGTERM after a
// pause, and sends SIGKILL if the process has not ended after another, longer pause.
//
// Signals go through the pidfd that identified the peer, so they never reach a later process with the same
// pid. Each process has at most one entry in entries_, and the entry uses the pidfd of a connection of the
// process. So repeated cancellations of a process need no further descriptors. Event-loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <string>

#include "arbiter/daemon/client.h"
#include "arbiter/daemon/system.h"

namespace sharedgpu {

class Cancellations {
 public:
  struct Pauses {
    // time for the process to print the reason
    Nanoseconds before_term = std::chrono::seconds(1);
    Nanoseconds before_kill = std::chrono::seconds(30);  // time between SIGTERM and SIGKILL
  };

  Cancellations(asio::io_context& loop, const System& system) : Cancellations(loop, system, Pauses()) {}
  Cancellations(asio::io_context& loop, const System& system, Pauses pauses)
      : loop_(loop), system_(system), pauses_(pauses) {}

  // Ends the peer's process, even if its connection closes. Does nothing if the process is already being
  // ended.
  void end(const std::shared_ptr<Client>& client, const std::string& reason);

 private:
  struct Entry {
    std::shared_ptr<Client> client;
    asio::steady_timer timer;
  };

  void signal_after(Nanoseconds pause, const ProcessName& process, int number);
  void signal(const ProcessName& process, int number);

  asio::io_context& loop_;
  const System& system_;
  const Pauses pauses_;
  std::map<ProcessName, Entry> entries_;
};

}  // namespace sharedgpu
