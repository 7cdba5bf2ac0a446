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
    Nanoseconds busy_until{};
    std::uint64_t passes = 0;
    const auto steps = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 40));
    for (int step : steps) {
      now += std::chrono::milliseconds(step);
      const bool works = step % 7 == 0;
      if (works) ++passes;
      if (works) busy_until = now + std::chrono::milliseconds(2 * step);
      const bool on_gpu = now < busy_until;
      last_work = std::max(last_work, works ? now : std::min(now, busy_until));
      auto idle = watch.look(now, passes, on_gpu && watch.must_ask(passes), step % 3 != 0);
      if (idle) {
        RC_ASSERT(!works && step % 3 != 0);
        RC_ASSERT(*idle <= now - last_work);
        RC_ASSERT(*idle >= std::chrono::milliseconds(1));
      }
    }
  });
  CHECK(held);
}
