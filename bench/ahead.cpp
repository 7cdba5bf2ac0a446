// SPDX-License-Identifier: Apache-2.0
// What a submission costs, beside the call that it wraps: where all tenants fit, and while the GPU is
// oversubscribed and the queue is kept short. On the simulated GPU, without modelled times.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "interposer/driver/call.h"
#include "interposer/gate/pages.h"
#include "interposer/hooks/streams.h"
#include "interposer/hooks/submission.h"
#include "interposer/session/session.h"

using namespace sharedgpu;

namespace {

CUstream stream = nullptr;
LeasePageWriter page;

bool set_up() {
  setenv("SIMGPU_SLOWDOWN", "0", 0);
  CUcontext context = nullptr;
  if (SHAREDGPU_REAL(cuInit, 0) != CUDA_SUCCESS ||
      SHAREDGPU_REAL(cuDevicePrimaryCtxRetain, &context, 0) != CUDA_SUCCESS ||
      SHAREDGPU_REAL(cuCtxPushCurrent_v2, context) != CUDA_SUCCESS ||
      SHAREDGPU_REAL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
    return false;
  session::contexts().add(context, 0, true);
  if (page.create() != 0 || !gate::install(page.fd())) return false;
  page.set_open(true);
  return true;
}

void submit(benchmark::State& state) {
  for (auto _ : state) hooks::Submission submission(reinterpret_cast<hooks::StreamWord>(stream), false);
}

void WhereAllFit(benchmark::State& state) {
  page.set_oversubscribed(false);
  submit(state);
}

void Oversubscribed(benchmark::State& state) {
  page.set_oversubscribed(true);
  submit(state);
}

// What comes with every interval: an event is recorded, and asked for once or twice.
void Mark(benchmark::State& state) {
  const auto place = hooks::locate(stream);
  for (auto _ : state) {
    CUresult result = CUDA_SUCCESS;
    const FencePtr fence = hooks::mark(*place, &result);
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
  return 0;
}
