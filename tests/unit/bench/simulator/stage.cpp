// SPDX-License-Identifier: Apache-2.0
#include "bench/simulator/stage.h"

#include <catch2/catch.hpp>
#include <sstream>

#include "bench/simulator/trace.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

Program paced(Nanoseconds burst, Nanoseconds period, Nanoseconds deadline) {
  Program program;
  program.size = 5;
  program.burst = burst;
  program.period = period;
  program.claims.deadline = deadline;
  return program;
}

Program hog(unsigned size) {
  Program program;
  program.size = size;
  return program;
}

TEST_CASE("A program that waits misses each deadline that passes meanwhile") {
  Program starved = paced(4ms, 50ms, 8ms);
  starved.size = 60;
  starved.arrival = 1s;
  Stage stage(1, {}, 1ms, {hog(60), starved}, "fcfs");
  stage.run(11s);
  const Stage::Seen seen = stage.seen(1);
  CHECK(seen.met == 0);
  CHECK(seen.missed >= 196);  // for about 10 s, a deadline passes every 50 ms
  CHECK(seen.missed <= 201);
}

TEST_CASE("A piece of work that ends when the next one arrives does not delay the next one") {
  Stage stage(1, {}, 0ms, {paced(10ms, 10ms, 10ms)});
  stage.run(10s);
  CHECK(stage.seen(0).missed == 0);
  CHECK(stage.seen(0).met >= 985);
}

TEST_CASE("While a piece of work takes longer than its period, pieces that arrive meanwhile are skipped") {
  Stage stage(1, {}, 0ms, {paced(15ms, 10ms, 20ms)});
  stage.run(10s);
  const Stage::Seen seen = stage.seen(0);
  CHECK(seen.met >= 490);
  CHECK(seen.missed >= seen.met - 1);
  CHECK(seen.missed <= seen.met + 1);
}

TEST_CASE("Work without a deadline meets none and misses none") {
  Stage stage(1, {}, 0ms, {paced(15ms, 10ms, 0ms)});
  stage.run(1s);
  CHECK(stage.seen(0).met == 0);
  CHECK(stage.seen(0).missed == 0);
}

TEST_CASE("After all programs have ended no time passes") {
  Program short_one = hog(5);
  short_one.work = 500ms;
  Stage stage(1, {}, 0ms, {short_one});
  stage.run(10s);
  CHECK(stage.all_ended());
  CHECK(stage.measured() >= 500ms);
  CHECK(stage.measured() <= 700ms);
  CHECK(stage.seen(0).lease <= stage.measured());
}

TEST_CASE("A turn ends when the burst does, however long kernels may be") {
  Program bursts = hog(60);
  bursts.burst = 10ms;
  bursts.pause = 20ms;
  bursts.kernel = 100s;
  Stage stage(1, {}, 1ms, {bursts, hog(60)});
  stage.run(60s);
  CHECK(stage.seen(1).lease >= 15s);
}

std::string error_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<Program> programs;
  return read_trace(stream, "t", programs);
}

TEST_CASE("Traces: contradictory columns are refused with their place") {
  CHECK(error_of("size,burst_s,period_s,deadline_s\n5,0.004,0.033,0.008\n5,0,0,0\n") == "");
  CHECK(error_of("size,burst_s,period_s\n5,0.004,0.033\n") == "");
  CHECK(error_of("size,period_s\n5,0.033\n") == "t:2: period_s without burst_s");
  CHECK(error_of("size,burst_s,deadline_s\n5,0.01,0\n5,0.01,0.02\n") == "t:3: deadline_s without period_s");
}

}  // namespace
}  // namespace sharedgpu
