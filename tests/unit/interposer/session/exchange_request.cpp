// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/exchange_request.h"

#include <catch2/catch.hpp>

#include "interposer/gate/gate.h"

using namespace sharedgpu;
using session::Exchanged;
using session::ExchangeRequest;

TEST_CASE("a request is carried out once, and tells the result", "[exchange_request]") {
  ExchangeRequest request({1, 2}, {3});
  CHECK_FALSE(request.done());
  CHECK(request.begin(7));
  CHECK_FALSE(request.begin(7));
  CHECK(request.move());
  CHECK_FALSE(request.cancel());
  const std::uint32_t seen = request.changed.seen();
  request.end({.outcome = Exchanged::complete});
  CHECK(request.changed.seen() != seen);
  CHECK(request.done());
  CHECK(request.result().outcome == Exchanged::complete);
  CHECK_FALSE(request.cancel());
}

TEST_CASE("a request without a pause moves at once, or is cancelled", "[exchange_request]") {
  ExchangeRequest request({1}, {3});
  CHECK(request.move_at_once());
  CHECK_FALSE(request.move_at_once());
  CHECK_FALSE(request.cancel());
  ExchangeRequest cancelled({1}, {3});
  CHECK(cancelled.cancel());
  CHECK_FALSE(cancelled.move_at_once());
}

TEST_CASE("a request that is cancelled while it waits is not begun, and ends no pause",
          "[exchange_request]") {
  const std::uint32_t of_another = gate::pause();
  REQUIRE(of_another != 0);
  ExchangeRequest request({}, {3});
  CHECK(request.cancel());
  CHECK(gate::paused());
  CHECK_FALSE(request.begin(of_another));
  CHECK_FALSE(request.move());
  CHECK(gate::paused());
  gate::resume(of_another);
  CHECK_FALSE(request.cancel());
  gate::after_fork();  // drops the page that pauses need
}

TEST_CASE("a request that is cancelled during the drain ends its own pause", "[exchange_request]") {
  ExchangeRequest request({}, {3});
  const std::uint32_t pause = gate::pause();
  REQUIRE(request.begin(pause));
  CHECK(request.cancel());
  CHECK_FALSE(gate::paused());
  CHECK_FALSE(request.move());

  // A later pause belongs to another request.
  ExchangeRequest late({}, {3});
  REQUIRE(late.begin(pause));
  const std::uint32_t next = gate::pause();
  CHECK(late.cancel());
  CHECK(gate::paused());
  gate::resume(next);
  gate::after_fork();
}

TEST_CASE("a request that no turn permits is done", "[exchange_request]") {
  ExchangeRequest request({}, {3});
  request.end({.outcome = Exchanged::closed});
  CHECK(request.done());
  CHECK(request.result().outcome == Exchanged::closed);
}
