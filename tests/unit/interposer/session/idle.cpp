// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/idle.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;
using namespace std::chrono_literals;
using session::IdleWatch;

TEST_CASE("a session without work says so, ever more rarely") {
  IdleWatch watch;
  int said = 0;
  Nanoseconds last{};
  for (Nanoseconds now = 0ms; now <= 10s; now += 5ms)
    if (auto idle = watch.look(1h + now, 42, false, true)) {
      CHECK(*idle > last);
      CHECK(*idle == now);
      last = *idle;
      ++said;
    }
  CHECK(last > 8s);
  CHECK(said < 45);
}

TEST_CASE("after a submission or work on the GPU, idleness begins anew") {
  IdleWatch watch;
  CHECK(!watch.look(0ms, 1, false, true));
  CHECK(watch.look(1ms, 1, false, true) == Nanoseconds(1ms));
  CHECK(!watch.look(6ms, 2, false, true));  // the session was busy until now
  CHECK(!watch.look(8ms, 2, false, true));
  CHECK(!watch.look(8900us, 2, false, true));
  CHECK(watch.look(9ms, 2, false, true) == Nanoseconds(1ms));
  CHECK(!watch.look(20ms, 2, true, true));
  CHECK(!watch.look(30ms, 2, false, true));
  CHECK(watch.look(34ms, 2, false, true) == Nanoseconds(4ms));
  watch.stop();
  CHECK(!watch.look(100ms, 2, false, true));
}

TEST_CASE("a session that has been idle for long reports this as soon as others wait") {
  IdleWatch watch;
  for (Nanoseconds now = 0ms; now <= 1s; now += 50ms) CHECK(!watch.look(now, 7, false, false));
  CHECK(watch.look(1s, 7, false, true) == Nanoseconds(1s));
  CHECK(!watch.look(1010ms, 7, false, true));
  CHECK(!watch.look(1020ms, 7, false, false));
  CHECK(watch.look(1030ms, 7, false, true) == Nanoseconds(1030ms));
}

TEST_CASE("the driver is asked only where its answer is not known") {
  IdleWatch watch;
  CHECK(watch.must_ask(5));
  watch.look(0ms, 5, true, true);
  CHECK(watch.must_ask(5));
  CHECK_FALSE(watch.must_ask(6));  // the session has just submitted
  watch.look(2ms, 6, false, true);
  CHECK(watch.must_ask(6));
  watch.look(4ms, 6, false, true);
  CHECK_FALSE(watch.must_ask(6));  // no submission since the last check, which found no work
  CHECK_FALSE(watch.must_ask(7));
}
