// SPDX-License-Identifier: Apache-2.0
// Submits pieces of work without waiting, counts how many pieces are unfinished at once, and verifies the
// results.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 20;
constexpr std::size_t kCopy = std::size_t{16} << 20;

struct Options {
  std::string bytes = "75%";
  std::string of;
  unsigned pieces = 1000;
  double piece_ms = 1;
  std::string work = "kernels";
  std::string stream = "made";
  unsigned stall_every = 0;
  bool progress = false;
};

// A long piece of work that is submitted by one call.
class Work {
 public:
  Work(const Options& options, const Kernels& kernels) : options_(options), spin_(kernels["spin"]) {
    if (options.work == "graphs") capture();
    if (options.work == "copies") {
      check(cuMemAllocHost(&host_, kCopy), "cuMemAllocHost");
      check(cuMemAlloc(&device_, kCopy), "cuMemAlloc");
      std::memset(host_, 0x5a, kCopy);
    }
  }

  void submit(CUstream stream) const {
    if (exec_ != nullptr)
      check(cuGraphLaunch(exec_, stream), "cuGraphLaunch");
    else if (host_ != nullptr)
      check(cuMemcpyHtoDAsync(device_, host_, kCopy, stream), "cuMemcpyHtoDAsync");
    else
      spin(stream);
  }

  bool right() const {
    if (host_ == nullptr) return true;
    std::vector<unsigned char> back(kCopy);
    check(cuMemcpyDtoH(back.data(), device_, kCopy), "cuMemcpyDtoH");
    return std::ranges::all_of(back, [](unsigned char byte) { return byte == 0x5a; });
  }

 private:
  void spin(CUstream stream) const {
    auto nanoseconds = static_cast<std::uint64_t>(options_.piece_ms * 1e6);
    launch(spin_, 1, stream, {&nanoseconds});
  }
  void capture() {
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
    spin(stream);
    check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    check(cuGraphInstantiateWithFlags(&exec_, graph, 0), "cuGraphInstantiateWithFlags");
    check(cuGraphDestroy(graph), "cuGraphDestroy");
    check(cuStreamDestroy(stream), "cuStreamDestroy");
  }

  const Options& options_;
  CUfunction spin_;
  CUgraphExec exec_ = nullptr;
  void* host_ = nullptr;
  CUdeviceptr device_ = 0;
};

// Counts unfinished pieces by an event after each piece.
class Unfinished {
 public:
  void add(CUstream stream) {
    CUevent event = nullptr;
    if (spare_.empty()) {
      check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    } else {
      event = spare_.back();
      spare_.pop_back();
    }
    check(cuEventRecord(event, stream), "cuEventRecord");
    all_.push_back(event);
    while (!all_.empty()) {
      const CUresult result = cuEventQuery(all_.front());
      if (result == CUDA_ERROR_NOT_READY) break;
      check(result, "cuEventQuery");
      spare_.push_back(all_.front());
      all_.pop_front();
    }
    most_ = std::max(most_, all_.size());
  }
  std::size_t most() const { return most_; }

 private:
  std::deque<CUevent> all_;
  std::vector<CUevent> spare_;
  std::size_t most_ = 0;
};

// Work that waits on the GPU for a later submission to another stream.
class Stall {
 public:
  Stall() {
    check(cuMemAlloc(&word_, 8), "cuMemAlloc");
    check(cuMemsetD8(word_, 0, 8), "cuMemsetD8");
    check(cuMemAllocHost(&host_, 8), "cuMemAllocHost");
    check(cuStreamCreate(&other_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
  }
  void begin(CUstream stream) {
    check(cuStreamWaitValue32(stream, word_, ++count_, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue32");
  }
  void end() {
    std::memcpy(host_, &count_, sizeof count_);
    check(cuMemcpyHtoDAsync(word_, host_, sizeof count_, other_), "cuMemcpyHtoDAsync");
  }

 private:
  CUdeviceptr word_ = 0;
  void* host_ = nullptr;
  CUstream other_ = nullptr;
  cuuint32_t count_ = 0;
};

CUstream stream_of(const Options& options) {
  if (options.stream == "legacy") return CU_STREAM_LEGACY;
  if (options.stream == "own") return CU_STREAM_PER_THREAD;
  CUstream stream = nullptr;
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

void run(const Options& options) {
  start();
  std::size_t whole = 0;
  check(cuDeviceTotalMem(&whole, 0), "cuDeviceTotalMem");
  CUdeviceptr held = 0;
  check(cuMemAlloc(&held, parse_size(options.bytes, options.of.empty() ? whole : parse_size(options.of, 0))),
        "cuMemAlloc");
  const Kernels kernels;
  Buffer buffer(kernels, kBuffer, 1);
  const Work work(options, kernels);
  Stall stall;
  Unfinished unfinished;
  const CUstream stream = stream_of(options);
  check(cuCtxSynchronize(), "cuCtxSynchronize");

  constexpr unsigned kStalled = 10;  // number of pieces that are submitted during a stall
  for (unsigned i = 0; i < options.pieces; ++i) {
    const unsigned since = options.stall_every == 0 ? kStalled + 1 : i % options.stall_every;
    if (since == 0) stall.begin(stream);
    if (since == kStalled) stall.end();
    work.submit(stream);
    buffer.step(i, stream);
    unfinished.add(stream);
    if (options.progress && i % 500 == 0) {
      std::printf("hog: pid %d: %u pieces\n", getpid(), i);
      std::fflush(stdout);
    }
  }
  if (options.stall_every != 0) stall.end();
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  if (!buffer.verify(options.pieces, stream) || !work.right()) fail("the device memory is wrong");
  std::printf("hog: %u pieces verified, at most %zu unfinished\n", options.pieces, unfinished.most());
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Gives the GPU work and never waits for it.");
  Options options;
  app.add_option("--bytes", options.bytes, "device memory to hold: a size, or a percentage of the device");
  app.add_option("--of", options.of, "what a percentage is of, where that is not cuDeviceTotalMem");
  app.add_option("--pieces", options.pieces, "how much work").positive();
  app.add_option("--piece-ms", options.piece_ms, "what a piece of it takes, but for copies").positive();
  app.add_option("--work", options.work, "what it is").one_of({"kernels", "graphs", "copies"});
  app.add_option("--stream", options.stream, "where it goes").one_of({"made", "legacy", "own"});
  app.add_option("--stall-every", options.stall_every,
                 "after so many pieces the next 10 wait on the GPU for what is submitted after them");
  app.add_flag("--progress", options.progress, "print a line every 500 pieces");
  app.parse(argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    fail(error.what());
  }
  return 0;
}
