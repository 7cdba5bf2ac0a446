// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "interposer/session/idle.h"

using namespace sharedgpu;

TEST_CASE("a session never says that it was idle longer than it was") {
  bool held = rc::check([] {
    session::IdleWatch watch;
    Nanoseconds now{};
    Nanoseconds last_work{};
    std::uint64_t passes = 0;
    const auto steps = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 40));
    for (int step : steps) {
      now += std::chrono::milliseconds(step);
      bool works = step % 7 == 0;
      if (works) ++passes;
      if (works) last_work = now;
      auto idle = watch.look(now, passes, false);
      if (idle) {
        RC_ASSERT(!works);
        RC_ASSERT(*idle <= now - last_work);
        RC_ASSERT(*idle >= std::chrono::milliseconds(20));
      }
    }
  });
  CHECK(held);
}
