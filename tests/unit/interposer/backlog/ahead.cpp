// SPDX-License-Identifier: Apache-2.0
// The rule that limits a stream's backlog. Arithmetic on times simulates the GPU.
#include "interposer/backlog/ahead.h"

#include "tests/unit/interposer/support/paced_gpu.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;
using namespace std::chrono_literals;
using test::PacedGpu;

TEST_CASE("the queue of a program that never waits is about 20 ms long, and never empty") {
  for (Nanoseconds kernel : {10us, 100us, 1000us, 5000us}) {
    INFO(kernel.count());
    PacedGpu gpu(5us);
    while (gpu.now() < 2s) gpu.submit(kernel);
    gpu.forget_statistics();
    while (gpu.now() < 4s) gpu.submit(kernel);
    CHECK(gpu.longest_queue() <= 25ms);
    CHECK(gpu.idle() == 0ns);
    CHECK(gpu.in_vain() == 0);
    CHECK(gpu.marks() <= 3200);  // number of fences in two seconds
  }
}

TEST_CASE("the queue is soon as long as a new goal") {
  PacedGpu gpu(5us);
  while (gpu.now() < 1s) gpu.submit(100us);
  for (Nanoseconds goal : {5ms, 2ms, 10ms}) {
    INFO(goal.count());
    gpu.aim_for(goal);
    const Nanoseconds begun = gpu.now();
    while (gpu.now() < begun + 100ms) gpu.submit(100us);
    gpu.forget_statistics();
    while (gpu.now() < begun + 2s) gpu.submit(100us);
    CHECK(gpu.longest_queue() >= goal * 3 / 4);
    CHECK(gpu.longest_queue() <= goal * 5 / 4);
    CHECK(gpu.idle() == 0ns);
    CHECK(gpu.in_vain() == 0);
  }
}

TEST_CASE("the queue of a new program with long kernels never becomes long") {
  PacedGpu gpu(5us);
  for (int i = 0; i < 3000; ++i) gpu.submit(1ms);
  CHECK(gpu.longest_queue() <= 30ms);
}

TEST_CASE("of kernels longer than 20 ms, one at a time is queued") {
  for (Nanoseconds kernel : {25ms, 110ms, 300ms, 450ms}) {
    INFO(kernel.count());
    PacedGpu gpu(5us);
    for (int i = 0; i < 50; ++i) gpu.submit(kernel);
    gpu.forget_statistics();
    for (int i = 0; i < 100; ++i) gpu.submit(kernel);
    CHECK(gpu.longest_queue() <= 2 * kernel);
    CHECK(gpu.idle() <= 100 * 500us);
  }
}

TEST_CASE("a program that cannot keep the GPU busy is not held up") {
  PacedGpu gpu(50us);
  for (int i = 0; i < 100000; ++i) gpu.submit(10us);
  CHECK(gpu.waited() == 0ns);
  CHECK(gpu.marks() <= 100000 / 20);
  gpu.forget_statistics();
  for (int i = 0; i < 100000; ++i) gpu.submit(10us);
  CHECK(gpu.marks() <= 100000 / 40);
}

TEST_CASE("a pause of the program is not taken for long kernels") {
  PacedGpu gpu(5us);
  for (int burst = 0; burst < 50; ++burst) {
    for (int i = 0; i < 100; ++i) gpu.submit(1ms);
    gpu.pause(burst % 2 == 0 ? 500ms : 30ms);
    CHECK(gpu.window() >= 10);
    CHECK(gpu.window() <= 40);
  }
}

TEST_CASE("kernels that become longer shrink the window at once, and shorter ones open it slowly") {
  PacedGpu gpu(5us);
  while (gpu.now() < 1s) gpu.submit(100us);
  const auto before = gpu.window();
  for (int i = 0; i < 400; ++i) gpu.submit(2ms);
  CHECK(gpu.window() <= 12);
  gpu.forget_statistics();
  for (int i = 0; i < 200; ++i) gpu.submit(2ms);
  CHECK(gpu.longest_queue() <= 30ms);
  gpu.submit(100us);
  CHECK(gpu.window() <= 12);
  for (int i = 0; i < 4000; ++i) gpu.submit(100us);
  CHECK(gpu.window() * 10 >= before * 8);
}

TEST_CASE("work that was queued before the counting began does not change the estimates") {
  PacedGpu gpu(5us);
  gpu.queue_uncounted(900ms);
  for (int i = 0; i < 3000; ++i) gpu.submit(1ms);
  CHECK(gpu.window() >= 15);
  CHECK(gpu.window() <= 25);
}

TEST_CASE("a kernel that waits for the program's next submission gets it") {
  PacedGpu gpu(5us);
  for (int i = 0; i < 200; ++i) gpu.submit(30ms);  // after these, the rule allows one submission at a time
  Nanoseconds worst{};
  const Nanoseconds began = gpu.now();
  for (int i = 0; i < 100; ++i) {
    const Nanoseconds before = gpu.now();
    gpu.submit_after(1);
    gpu.submit(10us);
    worst = std::max(worst, gpu.now() - before);
  }
  CHECK(worst <= backlog::Ahead::kMostPatience);
  CHECK(gpu.now() - began <= 10s);
}

TEST_CASE("a kernel that waits for many submissions gets them ever more quickly") {
  PacedGpu gpu(5us);
  for (int i = 0; i < 200; ++i) gpu.submit(2ms);
  const Nanoseconds before = gpu.waited();
  gpu.submit_after(60);
  for (int i = 0; i < 60; ++i) gpu.submit(10us);
  CHECK(gpu.waited() - before <= 1500ms);
}

TEST_CASE("if no fence can be recorded, no submission waits") {
  backlog::Ahead ahead;
  for (int i = 0; i < 100000; ++i) {
    REQUIRE(!ahead.full());
    const auto granted = ahead.begin(Nanoseconds(i));
    if (ahead.count(granted)) ahead.not_marked();
  }
}

TEST_CASE("the wait of a submission at the gate does not count as time on the GPU") {
  backlog::Ahead ahead;
  Nanoseconds now = 0ms;
  for (int turn = 0; turn < 10; ++turn) {
    ahead.begin(now);
    now += 1s;  // meanwhile other tenants hold the lease
    ahead.count(1, now);
    ahead.marked();
    now += 1ms;
    ahead.passed(1, now, true);
  }
  CHECK(ahead.submission() < 2ms);
}
