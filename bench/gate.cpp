// SPDX-License-Identifier: Apache-2.0
// Measures the cost that an open gate adds to each submission.
#include <benchmark/benchmark.h>

#include <thread>

#include "interposer/gate/closing.h"
#include "interposer/gate/gate.h"

namespace {

using sharedgpu::gate::Pass;

[[gnu::noinline]] int submission(int value) {
  benchmark::DoNotOptimize(value);
  return value;
}

void Bare(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(submission(1));
}

void ThroughTheGate(benchmark::State& state) {
  for (auto _ : state) {
    Pass pass;
    benchmark::DoNotOptimize(submission(1));
  }
}

void NestedPass(benchmark::State& state) {
  Pass outer;
  for (auto _ : state) {
    Pass pass;
    benchmark::DoNotOptimize(submission(1));
  }
}

// Measures the cost of closing the gate, which happens once per turn.
void CloseAnIdleGate(benchmark::State& state) {
  struct Nothing final : sharedgpu::gate::Drain {
    bool drain() override { return true; }
  } nothing;
  static struct final : sharedgpu::gate::GateListener {
    void on_wait() override {}
    bool all_resident() override { return true; }
  } listener;
  sharedgpu::gate::arm(listener);
  sharedgpu::LeasePageWriter page;
  if (page.create() != 0 || !sharedgpu::gate::install(page.fd())) return state.SkipWithError("no lease page");
  for (auto _ : state) {
    sharedgpu::gate::hold();
    benchmark::DoNotOptimize(sharedgpu::gate::close(nothing));
  }
  sharedgpu::gate::open_for_good();
}

const int cores = static_cast<int>(std::thread::hardware_concurrency());

BENCHMARK(Bare)->ThreadRange(1, cores);
BENCHMARK(ThroughTheGate)->ThreadRange(1, cores);
BENCHMARK(NestedPass);
BENCHMARK(CloseAnIdleGate);

}  // namespace

BENCHMARK_MAIN();
