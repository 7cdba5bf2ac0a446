// SPDX-License-Identifier: Apache-2.0
#include "interposer/backlog/turn_rest.h"

#include <catch2/catch.hpp>

using namespace std::chrono_literals;
using sharedgpu::backlog::TurnRest;

TEST_CASE("a turn is given back when the next submission does not end in it") {
  TurnRest rest;
  CHECK_FALSE(rest.give_back(1, 0, 100ms, 0ms, 30ms));
  CHECK_FALSE(rest.give_back(1, 1, 100ms, 70ms, 30ms));
  CHECK(rest.give_back(1, 1, 100ms, 71ms, 30ms));
}

TEST_CASE("a submission that is longer than any turn is made at the beginning of a turn") {
  TurnRest rest;
  for (std::uint32_t turn = 1; turn < 9; turn += 2) {
    CHECK_FALSE(rest.give_back(turn, turn - 2, 100ms, 0ms, 1s));
    CHECK(rest.give_back(turn, turn, 100ms, 50ms, 1s));
  }
}

TEST_CASE("a turn without a known end is not given back") {
  TurnRest rest;
  CHECK_FALSE(rest.give_back(1, 0, 0ms, 0ms, 30ms));
  CHECK_FALSE(rest.give_back(1, 1, 0ms, 1000ms, 30ms));
}

TEST_CASE("each turn is given back once at most, also if the gate did not close before the next turn") {
  TurnRest rest;
  rest.give_back(1, 0, 100ms, 0ms, 30ms);
  CHECK(rest.give_back(1, 1, 100ms, 80ms, 30ms));
  CHECK_FALSE(rest.give_back(1, 1, 100ms, 90ms, 30ms));
  CHECK(rest.give_back(1, 1, 200ms, 180ms, 30ms));
}

TEST_CASE("the first submission after a closed gate is made, and the turn is given back before the next") {
  TurnRest rest;
  CHECK(rest.give_back(1, 1, 100ms, 71ms, 30ms));
  CHECK_FALSE(rest.give_back(3, 1, 200ms, 190ms, 30ms));
  CHECK(rest.give_back(3, 3, 200ms, 190ms, 30ms));
}
