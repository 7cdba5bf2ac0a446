// SPDX-License-Identifier: Apache-2.0
#include "protocol/ask.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <thread>

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

// Listens at its own path, and serves one connection after another.
class Listener {
 public:
  Listener() : socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
    unlink(path_.c_str());
    REQUIRE(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(socket_.get(), 8) == 0);
  }
  ~Listener() { unlink(path_.c_str()); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  const char* path() const { return path_.c_str(); }
  // Reads a query, and answers it if requested. Then closes the connection.
  void serve(bool answers) {
    Channel peer(UniqueFd(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    Message question;
    UniqueFd none;
    if (peer.receive(question, none) == 0 && answers) peer.send(Message::of(EndJobReply{}));
  }

 private:
  const std::string path_ = "/tmp/sharedgpu-ask." + std::to_string(getpid());
  UniqueFd socket_;
};

TEST_CASE("An arbiter that ends before it has answered is asked again") {
  Listener arbiter;
  std::thread served([&] {
    arbiter.serve(false);
    arbiter.serve(true);
  });
  Message answer;
  CHECK(ask(arbiter.path(), Message::of(EndJob{.job = 1}), 60s, answer) == 0);
  CHECK(answer.type == MessageType::end_job_reply);
  served.join();
}

// The connection to a peer that refuses, and then closes it.
struct Refusing {
  Channel asker;
  Channel peer;
  Refusing() {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    asker = Channel(UniqueFd(ends[0]));
    peer = Channel(UniqueFd(ends[1]));
  }
  void refuse() {
    REQUIRE(peer.send(Message::of(Refused{.reason = "why"})) == 0);
    peer.close();
  }
};

TEST_CASE("A refusal arrives, though the peer has closed the connection without reading the question") {
  Refusing at;
  Message answer;
  UniqueFd none;
  SECTION("before the question is sent") {
    at.refuse();
    REQUIRE(ask(at.asker, Message::of(EndJob{.job = 1}), 60s, answer, none) == 0);
  }
  SECTION("after the question is sent") {
    REQUIRE(at.asker.send(Message::of(EndJob{.job = 1})) == 0);
    at.refuse();
    REQUIRE(at.asker.receive(answer, none) == 0);
  }
  CHECK(answer.type == MessageType::refused);
  CHECK(at.asker.receive(answer, none) == ECONNRESET);
}

TEST_CASE("A question to a peer that has closed the connection without an answer fails") {
  Refusing at;
  Message answer;
  UniqueFd none;
  at.peer.close();
  CHECK(ask(at.asker, Message::of(EndJob{.job = 1}), 60s, answer, none) == ECONNRESET);
}

TEST_CASE("An arbiter that never answers counts as reached, and is given up after the timeout") {
  Listener arbiter;
  Channel channel;
  Message answer;
  const Patience patience{.connect = 1ms, .answer = 50ms};
  CHECK(ask(arbiter.path(), Message::of(EndJob{.job = 1}), patience, channel, answer) == ETIMEDOUT);
  CHECK(channel);
}

TEST_CASE("A missing arbiter counts as not reached") {
  Channel channel;
  Message answer;
  CHECK(ask("/tmp/none/none", Message::of(EndJob{.job = 1}), {.connect = 1ms, .answer = 50ms}, channel,
            answer) == ENOENT);
  CHECK_FALSE(channel);
}

}  // namespace
}  // namespace sharedgpu
