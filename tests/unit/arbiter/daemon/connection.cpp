// SPDX-License-Identifier: Apache-2.0
// A connection whose peer reads late, or never.
#include "arbiter/daemon/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <cerrno>
#include <optional>
#include <string>

#include "protocol/channel.h"

namespace sharedgpu {
namespace {

struct ConnectionPair {
  asio::io_context loop{1};
  const System system;
  Schedule schedule{loop, system};
  Closer closer{loop, system, schedule};
  Channel peer;
  std::shared_ptr<Connection> connection;
  std::optional<std::string> closed;  // the reason for closing; nullopt while the connection is open
  unsigned heard = 0;
  std::uint64_t sent = 0, read = 0;

  explicit ConnectionPair(std::shared_ptr<Admission::Place> place = {}) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    peer = Channel(UniqueFd(ends[0]));
    connection =
        std::make_shared<Connection>(Connection::Parts{.loop = loop, .schedule = schedule, .closer = closer},
                                     UniqueFd(ends[1]), Peer{}, std::move(place));
    connection->start([this](const Message&) { ++heard; },
                      [this](const std::string& reason) { closed = reason; });
  }
  ~ConnectionPair() {
    connection->close({});
    run();
  }
  void run() {
    loop.restart();
    while (loop.poll() > 0) {
    }
  }
  // Sends a message that contains its own number.
  void send(int descriptor = -1) {
    connection->send(Message::of(Verdict{.request = static_cast<std::uint32_t>(++sent), .allowed = {}}),
                     descriptor);
  }
  // Returns the number of messages that have arrived in order, and the number of descriptors that came with
  // them.
  std::pair<std::uint64_t, unsigned> read_all() {
    std::uint64_t count = 0;
    unsigned descriptors = 0;
    for (;;) {
      run();
      Message message;
      UniqueFd descriptor;
      if (peer.receive(message, descriptor) != 0) return {count, descriptors};
      REQUIRE(message.as<Verdict>().request == ++read);
      ++count;
      descriptors += descriptor ? 1 : 0;
    }
  }
};

// The number of messages that a peer may leave unread: those in the socket, and those that the connection
// queues.
unsigned most_unread() {
  ConnectionPair pair;
  for (unsigned count = 0;; ++count) {
    pair.send();
    pair.run();
    if (pair.closed) return count;
    REQUIRE(count < 100000);
  }
}

TEST_CASE("A peer that reads late gets all messages in order") {
  const unsigned most = most_unread();
  REQUIRE(most > 256);
  ConnectionPair pair;
  for (unsigned i = 0; i < most; ++i) pair.send();
  CHECK(pair.connection->has_unread());
  CHECK(pair.read_all().first == most);
  pair.send();
  CHECK(pair.read_all().first == 1);
  CHECK_FALSE(pair.connection->has_unread());
  CHECK_FALSE(pair.closed);
}

TEST_CASE("A message is queued behind earlier messages even if the socket has room again") {
  const unsigned most = most_unread();
  ConnectionPair pair;
  for (unsigned i = 0; i < most - 1; ++i) pair.send();
  Message message;
  UniqueFd none;
  for (int i = 0; i < 10; ++i) {
    REQUIRE(pair.peer.receive(message, none) == 0);
    REQUIRE(message.as<Verdict>().request == ++pair.read);
  }
  pair.send();
  CHECK(pair.read_all().first == most - 10);
  CHECK_FALSE(pair.closed);
}

TEST_CASE("A peer that reads nothing is dropped if 256 messages are queued in addition to its socket's") {
  const unsigned most = most_unread();
  ConnectionPair pair;
  for (unsigned i = 0; i < most; ++i) pair.send();
  pair.run();
  CHECK_FALSE(pair.closed);
  pair.send();
  pair.send();  // no effect, since the connection is closed
  pair.run();
  CHECK(pair.closed == kDoesNotRead);
}

TEST_CASE("A peer that reads late is dropped when a second descriptor is queued for it") {
  const unsigned most = most_unread();
  ConnectionPair pair;
  for (unsigned i = 0; i < most - 10; ++i) pair.send();
  SECTION("one") {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pair.send(ends[0]);
    close(ends[0]);  // the connection has sent a duplicate
    pair.send();
    CHECK(pair.read_all() == std::pair<std::uint64_t, unsigned>(most - 8, 1));
    CHECK_FALSE(pair.closed);
    close(ends[1]);
  }
  SECTION("two") {
    pair.send(STDERR_FILENO);
    pair.send(STDERR_FILENO);
    pair.run();
    CHECK(pair.closed == kDoesNotRead);
  }
  SECTION("one that there is not") {
    pair.send(1 << 20);
    pair.run();
    CHECK(pair.closed == "Bad file descriptor");
  }
}

TEST_CASE("A peer that disconnects while messages wait for it is no error") {
  const unsigned most = most_unread();
  ConnectionPair pair;
  for (unsigned i = 0; i < most; ++i) pair.send();
  pair.peer.close();
  pair.run();
  REQUIRE(pair.closed);
  CHECK(*pair.closed == "");
  pair.send();
  pair.connection->close("once is enough");
  pair.run();
  CHECK(pair.closed == "");
}

TEST_CASE("A message to a peer that has disconnected is no error") {
  ConnectionPair pair;
  pair.peer.close();
  pair.send();
  pair.run();
  CHECK(pair.closed == "");
}

TEST_CASE("A peer that passes a descriptor is closed, and its descriptor is never opened here") {
  ConnectionPair pair;
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(pair.peer.send(Message::of(Want{})) == 0);
  REQUIRE(pair.peer.send(Message::of(Want{}), ends[1]) == 0);
  REQUIRE(pair.peer.send(Message::of(Want{})) == 0);
  close(ends[1]);
  pair.run();
  CHECK(pair.heard == 1);
  CHECK(pair.closed == "it sent file descriptors, which is not allowed");
  // poll() reports the end of the pipe when all write ends are closed.
  pollfd end = {.fd = ends[0], .events = POLLIN, .revents = 0};
  CHECK(poll(&end, 1, 20'000) == 1);
  close(ends[0]);
}

TEST_CASE("The connection of a peer that sends an empty message is closed") {
  ConnectionPair pair;
  REQUIRE(send(pair.peer.fd(), "", 0, 0) == 0);
  pair.run();
  CHECK(pair.closed == "Protocol error");
}

TEST_CASE("All messages of a peer are read, however many it sends at once") {
  ConnectionPair pair;
  for (unsigned i = 0; i < 40; ++i) REQUIRE(pair.peer.send(Message::of(Want{})) == 0);
  pair.run();
  CHECK(pair.heard == 40);
  pair.connection->refuse(std::string(1000, 'x'));
  pair.run();
  CHECK(pair.closed == std::string(1000, 'x'));
  Message message;
  UniqueFd none;
  REQUIRE(pair.peer.receive(message, none) == 0);
  const std::string reason = message.as<Refused>().reason;
  CHECK(reason == std::string(sizeof(Refused::reason) - 1, 'x'));
  CHECK(pair.peer.receive(message, none) == ECONNRESET);
}

TEST_CASE("A peer that does not read is dropped sooner if other peers of its user do not read either") {
  Admission admission(100);
  const auto others = admission.enter(1, Admission::Rank::stranger);
  for (std::size_t i = 0; i < Admission::kMostWaiting - 10; ++i) REQUIRE(others->add_waiting());
  ConnectionPair pair(admission.enter(1, Admission::Rank::stranger));
  ConnectionPair job(admission.enter(1, Admission::Rank::member));
  while (!pair.closed && pair.sent < 1000) {
    pair.send();
    job.send();
    pair.run();
  }
  CHECK(pair.closed == "it does not read its messages, nor do others of its user");
  CHECK(pair.sent < 256);
  CHECK(job.read_all().first == job.sent);
  CHECK(admission.enter(1, Admission::Rank::stranger)
            ->add_waiting());  // messages that were queued for the closed connection do not count
}

}  // namespace
}  // namespace sharedgpu
