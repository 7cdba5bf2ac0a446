// SPDX-License-Identifier: Apache-2.0
// The listening socket: accepts peers, a bounded number per user, and passes each to the arbiter.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <string>

#include "arbiter/daemon/system.h"
#include "protocol/channel.h"

namespace sharedgpu {

class Arbiter;
class Connection;

class Server {
 public:
  Server(asio::io_context& loop, const System& system, Arbiter& arbiter);

  // Takes over a listening socket.
  void start(UniqueFd listener);
  void stop();

 private:
  void accept_some();
  bool accept_one();
  void let_in(UniqueFd socket);

  asio::io_context& loop_;
  const System& system_;
  Arbiter& arbiter_;
  asio::posix::stream_descriptor descriptor_;
  asio::steady_timer pause_;
  std::map<unsigned, std::shared_ptr<unsigned>> per_user_;
};

}  // namespace sharedgpu
