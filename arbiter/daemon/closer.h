// SPDX-License-Identifier: Apache-2.0
// Closes the connections of peers.
//
// A peer may leave unread messages with descriptors in its connection. Such a descriptor may itself be a
// socket with descriptors in its queue. The Linux kernel closes all these descriptors together with the
// connection. If one of these descriptors is a TCP socket with SO_LINGER, the peer can make close() block for
// as long as it likes, unless the closing process is exiting. So a child process closes such a connection by
// exiting. Each user has its own child, so a child that hangs delays no other user's connections.
//
// Event-loop thread only.
#pragma once

#include <sys/types.h>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <map>
#include <memory>
#include <vector>

#include "arbiter/daemon/schedule.h"
#include "arbiter/daemon/system.h"
#include "protocol/channel.h"

namespace sharedgpu {

class Closer {
 public:
  // `schedule` charges each user for the time that starting the user's children takes.
  Closer(asio::io_context& loop, const System& system, Schedule& schedule);

  // Closes a connection of the user. `place`, the connection's Admission::Place, is kept until the connection
  // is closed.
  void close(uid_t user, Channel connection, std::shared_ptr<void> place);

 private:
  struct Batch {
    std::vector<UniqueFd> sockets;
    std::vector<std::shared_ptr<void>> places;
  };
  struct User {
    explicit User(asio::io_context& loop) : death(loop) {}
    Batch waiting;
    bool start_is_due = false;
    std::vector<std::shared_ptr<void>> closing;  // the places of the connections that the child closes
    pid_t child = 0;                             // 0: none
    asio::posix::stream_descriptor death;        // the child's pidfd
  };
  void start_soon(uid_t user);
  void start(uid_t user);
  void watch(uid_t user, User& its);
  void finished(uid_t user);

  asio::io_context& loop_;
  const System& system_;
  Schedule& schedule_;
  std::map<uid_t, User> users_;  // users with connections that are still to be closed
};

}  // namespace sharedgpu
