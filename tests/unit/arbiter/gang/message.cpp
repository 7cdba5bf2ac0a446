// SPDX-License-Identifier: Apache-2.0
// The messages between arbiters: the text of each message can be parsed, and no other text can.
#include <catch2/catch.hpp>
#include <random>

#include "arbiter/gang/message.h"

namespace sharedgpu {
namespace {

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  std::uint64_t number() { return random_() >> (random_() % 64); }
  bool flag() { return random_() % 2 == 0; }
  unsigned below(unsigned count) { return static_cast<unsigned>(random_() % count); }

 private:
  std::mt19937_64 random_;
};

GangMessage any_message(Dice& dice) {
  std::string node(1 + dice.below(kLongestNodeName), 'n');
  GangMessage message{.node = node,
                      .job = static_cast<std::uint32_t>(dice.number()),
                      .run = dice.number(),
                      .life = dice.number() | 1,
                      .number = dice.number(),
                      .reader = dice.number(),
                      .nodes = static_cast<std::uint32_t>(dice.number()),
                      .is_new = dice.flag(),
                      .what = GangReport{}};
  if (dice.below(5) == 0)
    message.what = GangPatience{};
  else if (dice.below(5) == 0)
    message.what = GangQuestion{};
  else if (dice.flag())
    message.what = GangReport{.number = dice.number(),
                              .phase = static_cast<Phase>(dice.below(4)),
                              .offers = dice.flag(),
                              .ends = dice.flag(),
                              .ready = dice.flag(),
                              .drained = dice.flag(),
                              .steps = dice.number(),
                              .present = dice.flag(),
                              .wants = dice.flag(),
                              .idle = dice.flag(),
                              .settled = dice.flag(),
                              .grows = dice.flag()};
  else
    message.what = GangOrder{.seen = dice.number(),
                             .command = static_cast<GangCommand>(dice.below(4)),
                             .possible = dice.flag(),
                             .apart = dice.flag(),
                             .stopped = dice.flag(),
                             .wanted = dice.flag(),
                             .idle = dice.flag(),
                             .settled = dice.flag(),
                             .urgent = dice.flag(),
                             .drains = dice.flag(),
                             .grows = dice.flag(),
                             .lacks = dice.flag(),
                             .steps = dice.number(),
                             .since = Nanoseconds(static_cast<std::int64_t>(dice.number() >> 1))};
  return message;
}

TEST_CASE("A message is read as it was written, and fits a datagram") {
  Dice dice(1);
  for (int i = 0; i < 2000; ++i) {
    const GangMessage message = any_message(dice);
    const std::string text = format_message(message);
    REQUIRE(text.size() <= kLongestGangMessage);
    REQUIRE(parse_message(text) == message);
  }
}

TEST_CASE("A text that is cut, too long or malformed is no message") {
  Dice dice(2);
  for (int i = 0; i < 100; ++i) {
    const std::string text = format_message(any_message(dice));
    for (std::size_t size = 0; size < text.size(); ++size)
      if (const auto cut = parse_message(text.substr(0, size)); cut) REQUIRE(format_message(*cut) != text);
    REQUIRE_FALSE(parse_message(text + " 0"));
    REQUIRE_FALSE(parse_message(text + " "));
    REQUIRE_FALSE(parse_message(" " + text));
  }
  for (const char* text :
       {"", "sharedgpu-order-3", "sharedgpu-order-2 n1 1 0 1 1 1 1 0 1 0 1 0 0 0 0 0 0 0 0 1",
        "sharedgpu-report-2 1 0 1 1 0 2 1 0 0 0 0 0 0 1 0 0 0 0",
        "sharedgpu-report-3 n1 1 0 1 1 0 2 1 0 0 0 0 0 0 1 0 0 0 0",
        "sharedgpu-report-3 1 0 1 1 0 2 0 1 0 0 0 0 0 0 1 0 0 0 0",
        "sharedgpu-report-3 n1 1 0 1 1 0 2 2 1 0 0 0 0 0 0 1 0 0 0 0",
        "sharedgpu-report-3 n1 1 0 1 1 0 2 0 1 4 0 0 0 0 0 1 0 0 0 0",
        "sharedgpu-report-3 n1 1 0 1 1 0 2 0 1 0 2 0 0 0 0 1 0 0 0 0",
        "sharedgpu-report-3 n1 -1 0 1 1 0 2 0 1 0 0 0 0 0 0 1 0 0 0 0",
        "sharedgpu-report-3 n1 1 0  1 1 0 2 0 1 0 0 0 0 0 0 1 0 0 0 0",
        "sharedgpu-report-3 n1 1 0 0 1 0 2 0 1 0 0 0 0 0 0 1 0 0 0 0",
        "sharedgpu-report-3  1 0 1 1 0 2 0 1 0 0 0 0 0 0 1 0 0 0 0",
        "sharedgpu-report-3 n;1 1 0 1 1 0 2 0 1 0 0 0 0 0 0 1 0 0 0 0"})
    CHECK_FALSE(parse_message(text));
  CHECK(parse_message("sharedgpu-report-3 n1 1 0 1 1 0 2 0 1 0 0 0 0 0 0 1 0 0 0 0"));
  CHECK_FALSE(
      parse_message("sharedgpu-question-3 " + std::string(kLongestNodeName + 1, 'n') + " 1 0 1 1 0 0 0"));
}

TEST_CASE(
    "Of two messages of one run of an arbiter, the message with the higher number is newer, and a message of "
    "another run is always newer") {
  NewestMessage newest;
  const auto take = [&newest](std::uint64_t life, std::uint64_t number) {
    return newest.take({.node = "n1", .life = life, .number = number, .what = GangReport{}});
  };
  CHECK(take(7, 5));
  CHECK_FALSE(take(7, 5));
  CHECK_FALSE(take(7, 4));
  CHECK(take(7, 6));
  CHECK(take(8, 1));
}

}  // namespace
}  // namespace sharedgpu
