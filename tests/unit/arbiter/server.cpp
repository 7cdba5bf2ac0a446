// SPDX-License-Identifier: Apache-2.0
// Peers that are let in, that are refused, and that may try again.
#include "arbiter/daemon/server.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <string>

#include "host.h"

namespace sharedgpu::test {
namespace {

// A host whose arbiter listens. Its peers are of `uid`.
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

TEST_CASE("A peer that is not known for good is refused, with the reason") {
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

TEST_CASE("A peer that is not known for want of descriptors may try again, and the log says so") {
  Listening arbiter;
  arbiter.system.processes = EMFILE;
  Channel peer = arbiter.connect();
  Message message;
  CHECK(Listening::receive(peer, message) == ECONNRESET);  // a refusal would be for good
  CHECK(arbiter.host.new_log_lines() ==
        std::vector<std::string>{"warning: uid 4321: pidfd_open: Too many open files"});
}

TEST_CASE("A user has 1024 connections at most, root as many as it wants, and closed ones count no more") {
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
    CHECK(Listening::receive(beyond, message) == ECONNRESET);  // without a refusal
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

TEST_CASE("A server that has stopped lets nobody in") {
  Listening arbiter;
  Channel before = arbiter.connect();
  arbiter.server->stop();
  Channel late;
  CHECK(late.connect(arbiter.host.settings.socket.c_str()) != 0);
  CHECK(arbiter.is_served(before));
}

}  // namespace
}  // namespace sharedgpu::test
