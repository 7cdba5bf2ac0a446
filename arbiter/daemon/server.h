// SPDX-License-Identifier: Apache-2.0
// The listening socket: accepts peers as far as there are places for them, identifies each when its user's
// turn comes, and passes it to the arbiter.
//
// One thread, that of the event loop.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <memory>
#include <string>

#include "arbiter/daemon/admission.h"
#include "arbiter/daemon/connection.h"
#include "arbiter/daemon/system.h"
#include "protocol/channel.h"

namespace sharedgpu {

class Arbiter;

class Server {
 public:
  // `places`: connections for which the daemon's descriptors suffice.
  Server(const Connection::Parts& parts, const System& system, Arbiter& arbiter, std::size_t places);

  // Takes over a listening socket.
  void start(UniqueFd listener);
  void stop();

 private:
  struct Arrival;

  void accept_some();
  bool accept_one();
  void arrive(UniqueFd socket);
  void let_in(Arrival& arrival);
  void refuse(Arrival& arrival, const std::string& reason);
  void turn_away(Arrival& arrival, const std::string& why);

  const Connection::Parts its_;
  const System& system_;
  Arbiter& arbiter_;
  Admission admission_;
  asio::posix::stream_descriptor descriptor_;
  asio::steady_timer pause_;
};

}  // namespace sharedgpu
