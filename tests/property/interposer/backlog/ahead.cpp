// SPDX-License-Identifier: Apache-2.0
// The rule that limits a stream's backlog, with programs of all kinds.
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <vector>

#include "tests/unit/interposer/support/paced_gpu.h"

using namespace sharedgpu;
using namespace std::chrono_literals;
using test::PacedGpu;

namespace {

Nanoseconds between(Nanoseconds least, Nanoseconds most) {
  return Nanoseconds(*rc::gen::inRange<std::int64_t>(least.count(), most.count()));
}

}  // namespace

TEST_CASE("a queue of different kernels is at most five times as long as its goal, and the GPU has work") {
  CHECK(rc::check([] {
    const Nanoseconds goal = between(2ms, 20ms);
    const Nanoseconds shortest = between(5us, goal / 5);
    PacedGpu gpu(between(2us, 5us), goal);
    auto run = [&](Nanoseconds time) {
      const auto lengths = *rc::gen::container<std::vector<int>>(20, rc::gen::inRange(10, 40));
      for (const Nanoseconds end = gpu.now() + time; gpu.now() < end;)
        for (int length : lengths) gpu.submit(shortest * length / 10);
    };
    run(1s);
    gpu.forget_statistics();
    run(1s);
    RC_ASSERT(gpu.longest_queue() <= 5 * goal);
    // Polls notice that the GPU has passed a fence late, by at most the interval between two polls. The GPU
    // may be idle for this time.
    RC_ASSERT(gpu.idle() <= 10ms * (backlog::Ahead::kGoal / goal));
    RC_ASSERT(gpu.in_vain() == 0);
  }));
}

TEST_CASE("no program waits in vain for longer than promised") {
  CHECK(rc::check([] {
    PacedGpu gpu(between(2us, 100us));
    const auto steps = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 100));
    for (int step : steps) {
      if (step < 10) gpu.pause(std::chrono::milliseconds(5) * step);
      if (step >= 10 && step < 60) gpu.submit(std::chrono::microseconds(step * step * step));
      if (step < 60) continue;
      const Nanoseconds before = gpu.waited();
      const int in_vain = gpu.in_vain();
      gpu.submit_after(1);
      gpu.submit(10us);
      // In addition, the program may wait for the work in the stream.
      RC_ASSERT(gpu.waited() - before <= 2 * backlog::Ahead::kMostPatience + gpu.longest_queue());
      RC_ASSERT(gpu.in_vain() <= in_vain + 2);
    }
  }));
}
