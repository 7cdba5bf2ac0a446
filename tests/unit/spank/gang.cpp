// SPDX-License-Identifier: Apache-2.0
#include "spank/gang.h"

#include <sys/socket.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "protocol/channel.h"
#include "tests/unit/temporary_folder.h"

using namespace sharedgpu;

namespace {

constexpr std::chrono::milliseconds kShort{60};
constexpr std::chrono::seconds kLong{20};

RegisterGang gang() {
  RegisterGang gang = {.job = 12, .uid = 1000, .nodes = 3};
  std::string("n1").copy(gang.coordinator, sizeof gang.coordinator - 1);
  return gang;
}

// An arbiter that accepts `connections` connections, and answers one message on each. If the answer is empty,
// the arbiter closes the connection without an answer.
using Answer = std::function<std::optional<Message>(const Message&)>;
class Arbiter {
 public:
  Arbiter(const std::string& path, int connections, Answer answer) {
    REQUIRE(listen_at(path.c_str(), listener_) == 0);
    thread_ = std::thread([=, this] {
      for (int i = 0; i < connections; ++i) {
        Channel channel(UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
        Message message;
        UniqueFd ignored;
        if (channel.receive(message, ignored) != 0) continue;
        if (const auto reply = answer(message)) channel.send(*reply);
      }
    });
  }
  ~Arbiter() { thread_.join(); }

 private:
  UniqueFd listener_;
  std::thread thread_;
};

}  // namespace

TEST_CASE("the arbiter of a node gets the coordinator of a job's turns") {
  const test::TemporaryFolder folder;
  const std::string socket = folder.path + "/socket";
  RegisterGang heard;
  {
    Arbiter arbiter(socket, 1, [&](const Message& message) {
      if (message.type == MessageType::register_gang) heard = message.as<RegisterGang>();
      return Message::of(RegisterGangReply{.accepted = 1});
    });
    CHECK(register_gang(socket.c_str(), gang(), kLong).empty());
  }
  CHECK(heard.job == 12);
  CHECK(heard.uid == 1000);
  CHECK(heard.nodes == 3);
  CHECK(std::string(heard.coordinator) == "n1");
}

TEST_CASE("an arbiter that does not take a gang says so, one of an earlier version at once") {
  const test::TemporaryFolder folder;
  const std::string socket = folder.path + "/socket";
  {
    Arbiter arbiter(socket, 1, [](const Message&) { return Message::of(RegisterGangReply{}); });
    CHECK(register_gang(socket.c_str(), gang(), kLong) == "refused");
  }
  {
    Arbiter arbiter(socket, 1, [](const Message&) { return Message::of(Refused{.reason = "not now"}); });
    CHECK(register_gang(socket.c_str(), gang(), kLong) == "not now");
  }
  const auto begin = std::chrono::steady_clock::now();
  {
    Arbiter arbiter(socket, 3, [](const Message&) { return std::nullopt; });
    CHECK_FALSE(register_gang(socket.c_str(), gang(), kLong).empty());
  }
  CHECK(std::chrono::steady_clock::now() - begin < kLong / 2);
}

TEST_CASE("if an arbiter is killed before it answers, the next arbiter answers") {
  const test::TemporaryFolder folder;
  const std::string socket = folder.path + "/socket";
  bool killed = false;
  Arbiter arbiter(socket, 2, [&](const Message&) -> std::optional<Message> {
    if (!std::exchange(killed, true)) return std::nullopt;
    return Message::of(RegisterGangReply{.accepted = 1});
  });
  CHECK(register_gang(socket.c_str(), gang(), kLong).empty());
}

TEST_CASE("the wait for a missing arbiter ends after its timeout") {
  const test::TemporaryFolder folder;
  const std::string socket = folder.path + "/socket";
  CHECK(register_gang(socket.c_str(), gang(), kShort).find(socket) == 0);
}
