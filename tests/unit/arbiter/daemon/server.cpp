// SPDX-License-Identifier: Apache-2.0
// Tests which peers the arbiter accepts, which it refuses, and which may try again.
#include "arbiter/daemon/server.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <string>

#include "host.h"
#include "tests/unit/kernel.h"

namespace sharedgpu::test {
namespace {

// A host whose arbiter listens. All peers are processes of the user `uid`.
struct Listening {
  struct Users : FaultySystem {
    uid_t uid = kUser;
    bool credentials_of(int socket, ucred& credentials) const override {
      if (!FaultySystem::credentials_of(socket, credentials)) return false;
      credentials.uid = uid;
      return true;
    }
    Status read_file(const std::string& path, std::string& text) const override {
      if (!path.ends_with("/status")) return FaultySystem::read_file(path, text);
      text = "Name:\tx\nUid:\t" + std::to_string(uid) + "\n";
      return {};
    }
    std::optional<uid_t> owner;  // owner of the user namespace of all peers
    std::optional<uid_t> user_namespace_owner(pid_t /*pid*/) const override { return owner; }
  };
  Users system;
  Host host{{}, system};
  std::optional<Server> server;

  Listening() {
    host.start();
    UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    host.settings.socket.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(listener.get(), 64) == 0);
    constexpr std::size_t kPlaces = 16384;
    server.emplace(host.parts(), system, *host.arbiter, kPlaces);
    server->start(std::move(listener));
  }
  ~Listening() {
    if (server) server->stop();
    host.run();
  }
  Channel connect() {
    Channel channel;
    REQUIRE(channel.connect(host.settings.socket.c_str()) == 0);
    host.run();
    return channel;
  }
  static int receive(Channel& channel, Message& message) {
    UniqueFd descriptor;
    return channel.receive(message, descriptor);
  }
  bool is_served(Channel& channel) {
    if (channel.send(Message::of(StatusQuery{})) != 0) return false;
    host.run();
    Message message;
    return receive(channel, message) == 0 && message.type == MessageType::status_reply;
  }
};

TEST_CASE("All peers that connect at once are served") {
  Listening arbiter;
  std::vector<Channel> all(40);
  for (Channel& each : all) REQUIRE(each.connect(arbiter.host.settings.socket.c_str()) == 0);
  arbiter.host.run();
  for (Channel& each : all) CHECK(arbiter.is_served(each));
}

TEST_CASE("A peer that can never be identified is refused, with the reason") {
  Listening arbiter;
  arbiter.system.peers = ENOPROTOOPT;
  Channel peer = arbiter.connect();
  Message message;
  REQUIRE(Listening::receive(peer, message) == 0);
  REQUIRE(message.type == MessageType::refused);
  CHECK(std::string(message.as<Refused>().reason) == "SO_PEERCRED: Protocol not available");
  CHECK(Listening::receive(peer, message) == ECONNRESET);
  CHECK(arbiter.host.new_log_lines().empty());
  arbiter.system.peers = 0;
  Channel next = arbiter.connect();
  CHECK(arbiter.is_served(next));
}

TEST_CASE("A peer that cannot be identified for lack of descriptors may try again, and the log says so") {
  Listening arbiter;
  arbiter.system.processes = EMFILE;
  Channel peer = arbiter.connect();
  Message message;
  CHECK(Listening::receive(peer, message) == ECONNRESET);  // no Refused message, since sessions take a
                                                           // refusal as final
  CHECK(arbiter.host.new_log_lines() ==
        std::vector<std::string>{"warning: uid 4321: pidfd_open: Too many open files"});
}

TEST_CASE("A user has at most 1024 open connections, and root any number") {
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit enough = {.rlim_cur = std::min<rlim_t>(before.rlim_max, 8192), .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &enough) == 0);
  if (enough.rlim_cur < 8192) WARN("there may not be enough descriptors here");
  {
    Listening arbiter;
    std::vector<Channel> all;
    for (int i = 0; i < 1024; ++i) all.push_back(arbiter.connect());
    CHECK(arbiter.is_served(all.front()));
    CHECK(arbiter.is_served(all.back()));
    Channel beyond = arbiter.connect();
    Message message;
    CHECK(Listening::receive(beyond, message) == ECONNRESET);  // the connection is closed without a refusal
    CHECK(arbiter.host.new_log_lines() ==
          std::vector<std::string>{"warning: uid 4321: too many connections"});
    arbiter.system.uid = kUser + 1;
    Channel other = arbiter.connect();
    CHECK(arbiter.is_served(other));
    arbiter.system.uid = kUser;
    all.pop_back();
    arbiter.host.run();
    Channel again = arbiter.connect();
    CHECK(arbiter.is_served(again));
    arbiter.system.uid = 0;
    std::vector<Channel> of_root;
    for (int i = 0; i < 1030; ++i) of_root.push_back(arbiter.connect());
    CHECK(arbiter.is_served(of_root.back()));
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

// A listening arbiter that counts the files of /proc that it reads.
struct Counting {
  Listening arbiter;
  int read = 0;

  Counting() {
    arbiter.system.reading = [this](const std::string&) { return ++read, 0; };
    arbiter.system.time = std::chrono::hours(1);
  }
  Channel connect_only() {
    Channel channel;
    REQUIRE(channel.connect(arbiter.host.settings.socket.c_str()) == 0);
    return channel;
  }
  // Opens and closes `count` connections of one user.
  void come_and_go(int count) {
    for (int i = 0; i < count; ++i) {
      Channel peer = connect_only();
      REQUIRE(peer.send(Message::of(StatusQuery{})) == 0);
      peer.close();
      if (i % 32 == 31) arbiter.host.run();
    }
    arbiter.host.run();
  }
};

TEST_CASE("A connection without data that its peer has closed is closed without a look at the peer") {
  Counting its;
  its.arbiter.system.peers = ENOPROTOOPT;  // an attempt to identify a peer would fail
  for (int i = 0; i < 3000; ++i) {
    its.connect_only();
    if (i % 32 == 31) its.arbiter.host.run();
  }
  its.arbiter.host.run();
  CHECK(its.read == 0);
  CHECK(its.arbiter.host.new_log_lines().empty());
  its.arbiter.system.peers = 0;
  Channel next = its.arbiter.connect();  // the user may connect: the closed connections are not counted
  CHECK(its.arbiter.is_served(next));
}

TEST_CASE("The messages that a peer sent before it closed its connection are handled") {
  Counting its;
  its.arbiter.system.uid = 0;
  Channel peer = its.connect_only();
  RegisterJob job{.step = {.job = 7, .step = 0}, .uid = kUser, .options = {}};
  job.options.units = 4;
  REQUIRE(peer.send(Message::of(job)) == 0);
  peer.close();
  its.arbiter.host.run();
  CHECK(its.read > 0);
  REQUIRE(its.arbiter.host.status()["tenants"].size() == 1);
  CHECK(its.arbiter.host.status()["tenants"][0]["job"] == 7);
}

TEST_CASE(
    "A connection that its peer has closed is looked at where an empty message or a descriptor is left") {
  Counting its;
  Channel peer = its.connect_only();
  std::string reason;
  SECTION("an empty message") {
    REQUIRE(send(peer.fd(), "", 0, 0) == 0);
    reason = "Protocol error";
  }
  SECTION("a descriptor") {
    const int error = peer.send(Message::of(StatusQuery{}), STDIN_FILENO);
    REQUIRE(error == (kernel_refuses_descriptors() ? EPERM : 0));
    if (error != 0) return;
    reason = "it sent file descriptors, which is not allowed";
  }
  peer.close();
  its.arbiter.host.run();
  CHECK(its.read > 0);
  CHECK(its.arbiter.host.new_log_lines() == std::vector<std::string>{"warning: pid N: dropped: " + reason});
}

TEST_CASE("A user that connects too often is refused by its uid alone, until time has passed") {
  Counting its;
  its.come_and_go(static_cast<int>(Server::kComeAtOnce));
  its.arbiter.host.new_log_lines();
  its.read = 0;
  Channel beyond = its.arbiter.connect();
  Message message;
  CHECK(Listening::receive(beyond, message) == ECONNRESET);  // the connection is closed without a refusal
  CHECK(its.read == 0);
  CHECK(its.arbiter.host.new_log_lines() ==
        std::vector<std::string>{"warning: uid 4321: too many connections in a short time"});
  its.arbiter.system.uid = kUser + 1;
  Channel other = its.arbiter.connect();
  CHECK(its.arbiter.is_served(other));
  its.arbiter.system.uid = kUser;
  *its.arbiter.system.time += std::chrono::milliseconds(100);
  its.come_and_go(static_cast<int>(Server::kComeASecond / 10) - 1);
  Channel again = its.arbiter.connect();
  CHECK(its.arbiter.is_served(again));
}

TEST_CASE("All users of one user namespace together may connect as often as one user") {
  Counting its;
  its.arbiter.system.owner = kUser;
  for (uid_t i = 0; i < static_cast<uid_t>(Server::kComeAtOnce); ++i) {
    its.arbiter.system.uid = 100'000 + i;
    its.come_and_go(1);
  }
  its.arbiter.host.new_log_lines();
  its.arbiter.system.uid = 200'000;
  Channel beyond = its.arbiter.connect();
  Message message;
  CHECK(Listening::receive(beyond, message) == ECONNRESET);
  CHECK(its.arbiter.host.new_log_lines() ==
        std::vector<std::string>{"warning: uid 4321: too many connections in a short time"});
  its.arbiter.system.owner.reset();
  Channel other = its.arbiter.connect();
  CHECK(its.arbiter.is_served(other));
}

TEST_CASE("Root may connect as often as it wants") {
  Counting its;
  its.arbiter.system.uid = 0;
  its.come_and_go(static_cast<int>(Server::kComeAtOnce) + 10);
  Channel next = its.arbiter.connect();
  CHECK(its.arbiter.is_served(next));
}

TEST_CASE("A stopped server accepts no connection") {
  Listening arbiter;
  Channel before = arbiter.connect();
  arbiter.server->stop();
  Channel late;
  CHECK(late.connect(arbiter.host.settings.socket.c_str()) != 0);
  CHECK(arbiter.is_served(before));
}

}  // namespace
}  // namespace sharedgpu::test
