// SPDX-License-Identifier: Apache-2.0
// The listening socket: lets peers in, so many per user and so often, and tells the arbiter of each.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <string>

#include "arbiter/shell/token_bucket.h"
#include "protocol/channel.h"

namespace sharedgpu {

class Arbiter;
class Connection;

class Server {
 public:
  Server(asio::io_context& loop, Arbiter& arbiter);

  // Takes over a listening socket.
  void start(UniqueFd listener);
  void stop();

 private:
  // Enough for every process of a large node.
  static constexpr unsigned kMostPerUser = 1024;
  // Each that comes and goes leaves records in the ledger, and nobody is to fill that.
  static constexpr unsigned kArrivalsASecond = 50;
  struct User {
    std::shared_ptr<unsigned> connections = std::make_shared<unsigned>(0);
    TokenBucket arrivals{kMostPerUser, kArrivalsASecond};
    Nanoseconds noted{};  // when the log was last told; zero: never
  };

  void accept_some();
  bool accept_one();
  void let_in(UniqueFd socket);

  asio::io_context& loop_;
  Arbiter& arbiter_;
  asio::posix::stream_descriptor descriptor_;
  asio::steady_timer pause_;
  std::map<unsigned, User> users_;
};

}  // namespace sharedgpu
