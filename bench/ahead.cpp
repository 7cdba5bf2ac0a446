// SPDX-License-Identifier: Apache-2.0
// Measures the time of a submission, with the gate and the backlog limit, in two cases: all tenants fit, or
// the GPU is oversubscribed and the limit keeps the backlog short. Runs on the simulated GPU, where work
// takes no time.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "interposer/backlog/streams.h"
#include "interposer/backlog/submission.h"
#include "interposer/driver/call.h"
#include "interposer/process/process.h"
#include "tests/unit/interposer/support/scripted_arbiter.h"

using namespace sharedgpu;

namespace {

CUstream stream = nullptr;
test::ScriptedArbiter* arbiter = nullptr;

bool set_up() {
  setenv("SIMGPU_SLOWDOWN", "0", 0);
  CUcontext context = nullptr;
  const std::string socket = "/tmp/sharedgpu-bench-ahead-" + std::to_string(getpid());
  setenv("SHAREDGPU_SOCKET", socket.c_str(), 1);
  arbiter = new test::ScriptedArbiter(socket);
  if (arbiter->begin([] { return cuInit(0); }) != CUDA_SUCCESS ||
      SHAREDGPU_REAL(cuDevicePrimaryCtxRetain, &context, 0) != CUDA_SUCCESS ||
      SHAREDGPU_REAL(cuCtxPushCurrent_v2, context) != CUDA_SUCCESS ||
      SHAREDGPU_REAL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
    return false;
  Process::get()->contexts().add(context, 0, true);
  return true;
}

void submit(benchmark::State& state) {
  for (auto _ : state) backlog::Submission submission(reinterpret_cast<backlog::StreamWord>(stream), false);
}

void WhereAllFit(benchmark::State& state) {
  arbiter->page().set_oversubscribed(false);
  submit(state);
}

void Oversubscribed(benchmark::State& state) {
  arbiter->page().set_oversubscribed(true);
  submit(state);
}

// Measures the cost of a CUDA event as used by the backlog limit: recording it in the stream, and querying it
// until it is complete.
void Mark(benchmark::State& state) {
  const auto place = backlog::locate(stream);
  for (auto _ : state) {
    CUresult result = CUDA_SUCCESS;
    const FencePtr fence = backlog::mark(*place, &result);
    while (!fence->passed()) {
    }
  }
}

BENCHMARK(WhereAllFit);
BENCHMARK(Oversubscribed);
BENCHMARK(Mark);

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (!set_up()) return 1;
  benchmark::RunSpecifiedBenchmarks();
  delete arbiter;
  return 0;
}
