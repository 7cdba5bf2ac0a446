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

TEST_CASE("what is longer than any turn is submitted when one begins, and so at last") {
  TurnRest rest;
  for (std::uint32_t turn = 1; turn < 9; turn += 2) {
    CHECK_FALSE(rest.give_back(turn, turn - 2, 100ms, 0ms, 1s));
    CHECK(rest.give_back(turn, turn, 100ms, 50ms, 1s));
  }
}

TEST_CASE("no turn is given back that has an open end") {
  TurnRest rest;
  CHECK_FALSE(rest.give_back(1, 0, 0ms, 0ms, 30ms));
  CHECK_FALSE(rest.give_back(1, 1, 0ms, 1000ms, 30ms));
}

TEST_CASE("a turn is offered once, and its successor, that came without a closed gate, once more") {
  TurnRest rest;
  rest.give_back(1, 0, 100ms, 0ms, 30ms);
  CHECK(rest.give_back(1, 1, 100ms, 80ms, 30ms));
  CHECK_FALSE(rest.give_back(1, 1, 100ms, 90ms, 30ms));
  CHECK(rest.give_back(1, 1, 200ms, 180ms, 30ms));
}

TEST_CASE("what has waited at the gate for its turn is the first of it, and not the next one") {
  TurnRest rest;
  CHECK(rest.give_back(1, 1, 100ms, 71ms, 30ms));
  CHECK_FALSE(rest.give_back(3, 1, 200ms, 190ms, 30ms));
  CHECK(rest.give_back(3, 3, 200ms, 190ms, 30ms));
}
