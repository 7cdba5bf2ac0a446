// SPDX-License-Identifier: Apache-2.0
// One peer's connection: receives whole messages in the event loop, and queues a bounded number of messages
// to send. Nothing here blocks. This class closes the connection if the peer does not read its messages,
// sends a descriptor, or sends data that is no message.
//
// Event-loop thread only.
#pragma once

#include <asio/posix/stream_descriptor.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "arbiter/daemon/admission.h"
#include "arbiter/daemon/closer.h"
#include "arbiter/daemon/peers.h"
#include "arbiter/daemon/schedule.h"
#include "protocol/channel.h"

namespace sharedgpu {

inline constexpr char kDoesNotRead[] = "it does not read its messages";

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using OnMessage = std::function<void(const Message&)>;
  using OnClosed = std::function<void(const std::string& reason)>;  // called once, after close()
  // Parts of the daemon that all connections use. The parts outlive all connections.
  struct Parts {
    asio::io_context& loop;
    Schedule& schedule;
    Closer& closer;
  };

  // `place`, the connection's place in Admission, is held until the connection is closed. Null: the
  // connection is not counted.
  Connection(const Parts& parts, UniqueFd socket, Peer peer, std::shared_ptr<Admission::Place> place);

  // Starts reading. The handlers may close the connection.
  void start(OnMessage on_message, OnClosed on_closed);
  // Sends the message, with a duplicate of `fd` unless `fd` is -1. At most one descriptor may be queued.
  void send(const Message& message, int fd = -1);
  // Sends the message with `fd` at once. Returns false if that is impossible, for example because earlier
  // messages are still queued.
  bool send_now(const Message& message, int fd);
  // Returns true if the peer has not read all messages that were sent to it.
  bool has_unread() const;
  // Returns true if the daemon or the peer has closed the connection. There may be messages of the peer that
  // are not handled yet.
  bool is_closed() const;
  // Sends the reason to the peer, and closes the connection.
  void refuse(const std::string& reason);
  // Closes the connection at once, and calls on_closed with `reason` after the current handler. An empty
  // reason is not logged.
  void close(const std::string& reason);

  const Peer& peer() const { return peer_; }
  // The version of the protocol that both the daemon and the peer understand.
  std::uint16_t version() const { return channel_.version(); }

 private:
  struct Waiting {
    Message message;
    UniqueFd fd;
  };
  void await_message();
  void receive_in_turn();
  bool receive();
  void receive_failed(int failure);
  void refuse_version();
  bool may_wait(int fd) const;
  void write_some();
  void flush();

  const Parts its_;
  asio::posix::stream_descriptor descriptor_;  // the channel's socket; the channel owns it
  Channel channel_;
  Peer peer_;
  std::shared_ptr<Admission::Place> place_;
  std::deque<Waiting> queue_;
  OnMessage on_message_;
  OnClosed on_closed_;
  bool writing_ = false;
};

}  // namespace sharedgpu
