// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/exchange_totals.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;
using namespace std::chrono_literals;

TEST_CASE("exchanges add up, and the fastest one gives the time at best", "[exchange_totals]") {
  session::ExchangeTotals totals;
  CHECK(totals.read() == Exchanges{});
  CHECK(totals.read().moving_at_best() == 0s);
  totals.add_move({.evicted = Bytes{100}, .restored = Bytes{40}}, 1s);
  totals.add_move({.evicted = Bytes{0}, .restored = Bytes{400}}, 2s);
  totals.add_move({}, 1s);
  totals.add_wait(5s);
  totals.add_wait(1s);
  totals.add_slowed(3s);
  const Exchanges all = totals.read();
  CHECK(all == Exchanges{.moved = {.evicted = Bytes{100}, .restored = Bytes{440}},
                         .moving = 4s,
                         .waited = 6s,
                         .copied = Bytes{500},
                         .fastest = Bytes{200},
                         .slowed = 3s});
  CHECK(all.moving_at_best() == 2500ms);
}

TEST_CASE("an exchange that takes no time has no speed", "[exchange_totals]") {
  session::ExchangeTotals totals;
  totals.add_move({.evicted = Bytes{100}, .restored = {}}, 0s);
  CHECK(totals.read().fastest == Bytes{});
  CHECK(totals.read().moving_at_best() == 0s);
}

TEST_CASE("sums of times stay within the largest value", "[exchange_totals]") {
  const Exchanges endless{.waited = Nanoseconds::max()};
  CHECK((endless + endless).waited == Nanoseconds::max());
}

// A session may report arbitrary figures.
TEST_CASE("the time at best stays within the largest value", "[exchange_totals]") {
  const Exchanges slow{.copied = Bytes{std::uint64_t{1} << 60}, .fastest = Bytes{1}};
  CHECK(slow.moving_at_best() == Nanoseconds::max());
}
