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
    if (auto idle = watch.look(1h + now, 42, false)) {
      CHECK(*idle > last);
      CHECK(*idle == now);
      last = *idle;
      ++said;
    }
  CHECK(last > 8s);
  CHECK(said < 40);
}

TEST_CASE("a submission, work on the GPU, or nobody waiting begin it anew") {
  IdleWatch watch;
  CHECK(!watch.look(0ms, 1, false));
  CHECK(watch.look(20ms, 1, false) == Nanoseconds(20ms));
  CHECK(!watch.look(40ms, 2, false));
  CHECK(!watch.look(59ms, 2, false));
  CHECK(watch.look(60ms, 2, false) == Nanoseconds(20ms));
  CHECK(!watch.look(90ms, 2, true));
  CHECK(!watch.look(100ms, 2, false));
  CHECK(watch.look(110ms, 2, false) == Nanoseconds(20ms));
  watch.stop();
  CHECK(!watch.look(200ms, 2, false));
}
