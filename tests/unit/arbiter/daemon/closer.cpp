// SPDX-License-Identifier: Apache-2.0
// Connections with unread descriptors from their peers. Closing such a connection may block for ever.
#include "arbiter/daemon/closer.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <vector>

#include "systems.h"

namespace sharedgpu::test {
namespace {

constexpr uid_t kPeer = 4321;

// A TCP connection whose peer does not read, and which therefore lingers when it is closed.
struct Lingering {
  UniqueFd listener{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  UniqueFd ours{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  UniqueFd theirs;

  Lingering() {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(listener.get(), 1) == 0);
    socklen_t size = sizeof address;
    REQUIRE(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    REQUIRE(connect(ours.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    theirs.reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const linger for_ever = {.l_onoff = 1, .l_linger = 1 << 20};
    REQUIRE(setsockopt(ours.get(), SOL_SOCKET, SO_LINGER, &for_ever, sizeof for_ever) == 0);
    const std::vector<char> much(1 << 16);
    while (send(ours.get(), much.data(), much.size(), MSG_DONTWAIT) > 0) {
    }
  }
};

struct Closing {
  asio::io_context loop{1};
  FaultySystem system;
  Schedule schedule{loop, system};
  Closer closer{loop, system, schedule};
  Channel peer;
  UniqueFd arbiters;

  Closing() {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    peer = Channel(UniqueFd(ends[0]));
    arbiters.reset(ends[1]);
  }
  // Closes the arbiter's end. The result expires when the connection is closed.
  std::weak_ptr<void> close() {
    auto place = std::make_shared<int>();
    closer.close(kPeer, Channel(std::move(arbiters)), place);
    return place;
  }
  void run_until_free(const std::weak_ptr<void>& place) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!place.expired()) {
      REQUIRE(std::chrono::steady_clock::now() < end);
      loop.restart();
      loop.run_one_for(std::chrono::milliseconds(10));
    }
  }
};

TEST_CASE("A connection without queued descriptors is closed at once, even with unread messages") {
  Closing closing;
  REQUIRE(closing.peer.send(Message::of(Want{})) == 0);
  REQUIRE(send(closing.peer.fd(), "", 0, 0) == 0);
  REQUIRE(closing.peer.send(Message::of(Want{})) == 0);
  CHECK(closing.close().expired());
  Message message;
  UniqueFd none;
  CHECK(closing.peer.receive(message, none) == ECONNRESET);
  CHECK(closing.peer.send(Message::of(Want{})) == EPIPE);
}

// In each of these cases, the arbiter would block for ever if it closed the connection itself.
TEST_CASE("A connection with a slow descriptor is closed by a child process, and the loop continues") {
  Closing closing;
  Lingering lingering;
  SECTION("in the first message") {
    REQUIRE(closing.peer.send(Message::of(Want{}), lingering.ours.get()) == 0);
  }
  SECTION("behind others, and an empty one") {
    REQUIRE(closing.peer.send(Message::of(Want{})) == 0);
    REQUIRE(send(closing.peer.fd(), "", 0, 0) == 0);
    REQUIRE(closing.peer.send(Message::of(Want{}), lingering.ours.get()) == 0);
    REQUIRE(closing.peer.send(Message::of(Want{})) == 0);
  }
  SECTION("in another socket") {
    int nested[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, nested) == 0);
    Channel inner{UniqueFd(nested[0])};
    const UniqueFd outer(nested[1]);
    REQUIRE(inner.send(Message::of(Want{}), lingering.ours.get()) == 0);
    REQUIRE(closing.peer.send(Message::of(Want{}), outer.get()) == 0);
  }
  lingering.ours.reset();
  const auto place = closing.close();
  CHECK_FALSE(place.expired());
  closing.run_until_free(place);
  Message message;
  UniqueFd none;
  CHECK(closing.peer.receive(message, none) == ECONNRESET);
}

TEST_CASE("A connection that closes while the user's child is at work is closed after it") {
  Closing closing, second;
  Lingering lingering, other;
  REQUIRE(closing.peer.send(Message::of(Want{}), lingering.ours.get()) == 0);
  REQUIRE(second.peer.send(Message::of(Want{}), other.ours.get()) == 0);
  lingering.ours.reset();
  other.ours.reset();
  const auto place = closing.close();
  closing.loop.poll();  // the child has begun
  closing.arbiters = std::move(second.arbiters);
  const auto next = closing.close();
  closing.run_until_free(place);
  closing.run_until_free(next);
}

TEST_CASE("A child that cannot be watched is found to have ended when the user's next connection closes") {
  Closing closing, second;
  Lingering lingering, other;
  REQUIRE(closing.peer.send(Message::of(Want{}), lingering.ours.get()) == 0);
  REQUIRE(second.peer.send(Message::of(Want{}), other.ours.get()) == 0);
  lingering.ours.reset();
  other.ours.reset();
  closing.system.processes = EMFILE;
  const auto place = closing.close();
  closing.loop.poll();
  closing.system.processes = 0;
  CHECK_FALSE(place.expired());
  Message message;
  UniqueFd none;
  REQUIRE(closing.peer.receive(message, none) == ECONNRESET);  // the child has closed the connection
  siginfo_t ended = {};
  REQUIRE(waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT) == 0);
  closing.arbiters = std::move(second.arbiters);
  closing.run_until_free(closing.close());
  CHECK(place.expired());
}

}  // namespace
}  // namespace sharedgpu::test
