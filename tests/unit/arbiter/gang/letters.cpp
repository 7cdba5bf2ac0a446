// SPDX-License-Identifier: Apache-2.0
// The letters (messages) between arbiters: the text of each letter can be parsed, and no other text can be
// parsed.
#include <catch2/catch.hpp>
#include <random>

#include "arbiter/gang/letter.h"

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

GangLetter any_letter(Dice& dice) {
  std::string node(1 + dice.below(kLongestNodeName), 'n');
  GangLetter letter{.node = node,
                    .job = static_cast<std::uint32_t>(dice.number()),
                    .run = dice.number(),
                    .life = dice.number() | 1,
                    .number = dice.number(),
                    .reader = dice.number(),
                    .nodes = static_cast<std::uint32_t>(dice.number()),
                    .is_new = dice.flag(),
                    .what = GangReport{}};
  if (dice.below(5) == 0)
    letter.what = GangPatience{};
  else if (dice.below(5) == 0)
    letter.what = GangQuestion{};
  else if (dice.flag())
    letter.what = GangReport{.number = dice.number(),
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
    letter.what = GangOrder{.seen = dice.number(),
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
  return letter;
}

TEST_CASE("A letter is read as it was written, and fits a datagram") {
  Dice dice(1);
  for (int i = 0; i < 2000; ++i) {
    const GangLetter letter = any_letter(dice);
    const std::string text = format_letter(letter);
    REQUIRE(text.size() <= kLongestLetter);
    REQUIRE(parse_letter(text) == letter);
  }
}

TEST_CASE("A text that is cut, too long or malformed is no letter") {
  Dice dice(2);
  for (int i = 0; i < 100; ++i) {
    const std::string text = format_letter(any_letter(dice));
    for (std::size_t size = 0; size < text.size(); ++size)
      if (const auto cut = parse_letter(text.substr(0, size)); cut) REQUIRE(format_letter(*cut) != text);
    REQUIRE_FALSE(parse_letter(text + " 0"));
    REQUIRE_FALSE(parse_letter(text + " "));
    REQUIRE_FALSE(parse_letter(" " + text));
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
    CHECK_FALSE(parse_letter(text));
  CHECK(parse_letter("sharedgpu-report-3 n1 1 0 1 1 0 2 0 1 0 0 0 0 0 0 1 0 0 0 0"));
  CHECK_FALSE(
      parse_letter("sharedgpu-question-3 " + std::string(kLongestNodeName + 1, 'n') + " 1 0 1 1 0 0 0"));
}

TEST_CASE(
    "Of two letters of one run of an arbiter, the letter with the higher number is newer, and a letter of "
    "another run is always newer") {
  NewestLetter newest;
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
