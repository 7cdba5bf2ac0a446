// SPDX-License-Identifier: Apache-2.0
// Ends processes that keep others from a GPU: tells the process why, and sends it SIGTERM a moment later and
// SIGKILL when it has not ended by then.
//
// Signals go by the pidfd that identified the peer, so that they reach no process that came later under its
// pid. One process has one cancellation, and its pidfd is the connection's own: a user who is cancelled again
// and again takes no descriptors. One thread, that of the event loop.
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
    Nanoseconds before_term = std::chrono::seconds(1);   // in which the process writes the reason
    Nanoseconds before_kill = std::chrono::seconds(30);  // after SIGTERM
  };

  Cancellations(asio::io_context& loop, const System& system) : Cancellations(loop, system, Pauses()) {}
  Cancellations(asio::io_context& loop, const System& system, Pauses pauses)
      : loop_(loop), system_(system), pauses_(pauses) {}

  // Ends the peer's process, whatever becomes of its connection. Does nothing while it is being ended
  // already.
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
