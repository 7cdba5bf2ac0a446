// SPDX-License-Identifier: Apache-2.0
#include "protocol/ask.h"

#include <sys/socket.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <cerrno>
#include <string>
#include <thread>

using namespace sharedgpu;

namespace {

// A folder for one test's socket.
struct Place {
  Place() { REQUIRE(mkdtemp(folder) != nullptr); }
  ~Place() {
    unlink(socket().c_str());
    rmdir(folder);
  }
  std::string socket() const { return std::string(folder) + "/socket"; }
  char folder[32] = "/tmp/sharedgpu-ask.XXXXXX";
};

constexpr std::chrono::milliseconds kShort{60};
constexpr std::chrono::seconds kLong{20};

Message question() { return Message::of(LeaseQuery{.step = {.job = 4, .step = 2}}); }

void answer_one(const UniqueFd& listener) {
  Channel channel(UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  Message message;
  UniqueFd ignored;
  REQUIRE(channel.receive(message, ignored) == 0);
  auto step = message.as<LeaseQuery>().step;
  REQUIRE(channel.send(Message::of(LeaseReply{.step = step, .lease = Nanoseconds(9), .known = 1})) == 0);
}

}  // namespace

TEST_CASE("a question is answered") {
  Place place;
  UniqueFd listener;
  REQUIRE(listen_at(place.socket().c_str(), listener) == 0);
  std::thread arbiter([&] { answer_one(listener); });
  Message answer;
  int error = ask(place.socket().c_str(), question(), kLong, answer);
  arbiter.join();
  CHECK(error == 0);
  CHECK(answer.type == MessageType::lease_reply);
  CHECK(answer.as<LeaseReply>().step == StepName{.job = 4, .step = 2});
  CHECK(answer.as<LeaseReply>().lease == Nanoseconds(9));
}

TEST_CASE("an arbiter that is just starting is waited for") {
  Place place;
  std::thread arbiter([&] {
    std::this_thread::sleep_for(kShort);
    UniqueFd listener;
    REQUIRE(listen_at(place.socket().c_str(), listener) == 0);
    answer_one(listener);
  });
  Message answer;
  int error = ask(place.socket().c_str(), question(), kLong, answer);
  arbiter.join();
  CHECK(error == 0);
}

TEST_CASE("no arbiter, a silent one, a full one and a bad path end with an error") {
  Place place;
  Message answer;
  CHECK(ask(place.socket().c_str(), question(), kShort, answer) == ENOENT);
  CHECK_FALSE(is_listening(place.socket().c_str()));
  CHECK(ask("", question(), kShort, answer) == EINVAL);
  CHECK(ask(std::string(200, 'x').c_str(), question(), kShort, answer) == ENAMETOOLONG);

  UniqueFd listener;
  REQUIRE(listen_at(place.socket().c_str(), listener) == 0);
  CHECK(is_listening(place.socket().c_str()));
  CHECK(ask(place.socket().c_str(), question(), kShort, answer) == ETIMEDOUT);
  REQUIRE(listen(listener.get(), 0) == 0);  // all places in the queue are taken
  CHECK(ask(place.socket().c_str(), question(), kShort, answer) == ETIMEDOUT);
  CHECK(is_listening(place.socket().c_str()));
  listener.reset();
  CHECK(ask(place.socket().c_str(), question(), kShort, answer) == ECONNREFUSED);
  CHECK_FALSE(is_listening(place.socket().c_str()));
}
