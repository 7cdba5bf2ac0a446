// SPDX-License-Identifier: Apache-2.0
// The listening socket: accepts peers while places (Admission) are free, identifies each peer when its user's
// turn comes, and passes the peer to the arbiter.
//
// All users share the Linux kernel's queue of new connections, so handling each connection must cost little.
// If a peer has closed its connection without a message, the server closes it at once. If a user connects too
// often, the server closes the connection before it reads the peer's files in /proc.
//
// Event-loop thread only.
#pragma once

#include <sys/socket.h>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <string>

#include "arbiter/daemon/admission.h"
#include "arbiter/daemon/connection.h"
#include "arbiter/daemon/system.h"
#include "arbiter/daemon/token_bucket.h"
#include "protocol/channel.h"

namespace sharedgpu {

class Arbiter;

class Server {
 public:
  // The limits on new connections of a user: twice the user's places in a burst, and a rate per second.
  static constexpr double kComeAtOnce = 2.0 * Admission::kMostPerUser;
  static constexpr double kComeASecond = 1000;

  // `places`: the number of connections for which the daemon has enough descriptors.
  Server(const Connection::Parts& parts, const System& system, Arbiter& arbiter, std::size_t places);

  // Takes over a listening socket.
  void start(UniqueFd listener);
  void stop();

 private:
  struct Arrival;
  struct Known {
    pid_t pid;
    uid_t uid;
    uid_t account;
  };

  void accept_some();
  bool accept_one();
  void arrive(Channel channel);
  uid_t account_of_peer(const ucred& credentials);
  bool may_come(uid_t user);
  void let_in(Arrival& arrival);
  void refuse(Arrival& arrival, const std::string& reason);
  void turn_away(Arrival& arrival, uid_t user, const std::string& why);

  const Connection::Parts its_;
  const System& system_;
  Arbiter& arbiter_;
  Admission admission_;
  TokenBuckets<uid_t> coming_{kComeAtOnce, kComeASecond};  // one bucket for each uid and for each account
                                                           // (account_of())
  // The last peer that was accepted; reset when the arbiter does other work.
  std::optional<Known> last_;
  asio::posix::stream_descriptor descriptor_;
  asio::steady_timer pause_;
};

}  // namespace sharedgpu
