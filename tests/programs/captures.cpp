// SPDX-License-Identifier: Apache-2.0
// Begins stream captures, invalidates or abandons them in several ways, and then continues to work for a
// given time.
#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;
using Clock = std::chrono::steady_clock;

namespace {

void must(CUresult result, CUresult wanted, const char* call) {
  if (result != wanted) fail(std::string(call) + " does not return what plain CUDA returns");
}

CUstream new_stream() {
  CUstream stream = nullptr;
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

void begin(CUstream stream) {
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
}

void die_with_stream() {
  CUstream stream = new_stream();
  begin(stream);
  check(cuStreamDestroy(stream), "cuStreamDestroy");
}

void die_with_context(CUcontext context) {
  CUcontext other = nullptr;
#if CUDA_VERSION >= 13000
  check(cuCtxCreate(&other, nullptr, 0, 0), "cuCtxCreate");
#else
  check(cuCtxCreate(&other, 0, 0), "cuCtxCreate");
#endif
  begin(new_stream());
  check(cuCtxDestroy(other), "cuCtxDestroy");
  use(context);
}

void die_with_thread(CUcontext context) {
  std::thread([=] {
    use(context);
    begin(CU_STREAM_PER_THREAD);
  }).join();
}

void die_spoiled() {
  CUstream stream = new_stream();
  CUgraph graph = nullptr;
  begin(stream);
  must(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
       "cuStreamSynchronize in a capture");
  must(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "ending a spoiled capture");
  check(cuStreamDestroy(stream), "cuStreamDestroy");
}

void run(const std::string& bytes, double seconds) {
  CUcontext context = start();
  std::size_t whole = 0;
  check(cuDeviceTotalMem(&whole, 0), "cuDeviceTotalMem");
  Kernels kernels;
  Buffer buffer(kernels, parse_size(bytes, whole), 1);
  CUstream stream = new_stream();
  die_with_stream();
  die_with_context(context);
  die_with_thread(context);
  die_spoiled();
  std::printf("captures: all are dead\n");
  std::fflush(stdout);

  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  std::uint64_t steps = 0;
  do {
    buffer.step(steps++, stream);
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  } while (Clock::now() < end);
  if (!buffer.verify(steps, stream)) fail("the memory is wrong");
  check(cuStreamDestroy(stream), "cuStreamDestroy");
  buffer.free();
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app(
      "Lets captures die with their stream, context or thread, then changes and verifies its memory.");
  std::string bytes = "75%";
  double seconds = 1;
  app.add_option("--bytes", bytes, "device memory: a size, or a percentage of the device");
  app.add_option("--seconds", seconds, "how long to work on").not_negative();
  app.parse(argc, argv);
  return status_of([&] { run(bytes, seconds); });
}
