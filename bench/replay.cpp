// SPDX-License-Identifier: Apache-2.0
// Measures whether the kind of allocation affects the time of a graph's replay or a kernel's launch. Small
// kernels run on memory from cuMemAlloc and on mapped handles of several sizes, in one process, in several
// rounds. Prints the median times, and the medians of their ratios to the time with cuMemAlloc in the same
// round.
//
//   bench_replay [ROUNDS]      default: 21
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/median.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

constexpr std::uint64_t kWords = 32;
constexpr int kKernels = 10;
constexpr int kReplays = 5000;

CUdeviceptr allocated() {
  CUdeviceptr address = 0;
  check(cuMemAlloc(&address, 2u << 20), "cuMemAlloc");
  return address;
}

CUdeviceptr mapped(std::size_t size) {
  CUmemAllocationProp kind = {};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  check(cuMemAddressReserve(&address, size, 0, 0, 0), "cuMemAddressReserve");
  check(cuMemCreate(&handle, size, &kind, 0), "cuMemCreate");
  check(cuMemMap(address, size, 0, handle, 0), "cuMemMap");
  check(cuMemRelease(handle), "cuMemRelease");
  const CUmemAccessDesc access = {.location = kind.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  check(cuMemSetAccess(address, size, &access, 1), "cuMemSetAccess");
  return address;
}

class Way {
 public:
  Way(const char* name, const Kernels& kernels, CUstream stream, CUdeviceptr memory)
      : name_(name), fill_(kernels["pattern_fill"]), stream_(stream), memory_(memory) {
    check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
    work();
    CUgraph graph = nullptr;
    check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    check(cuGraphInstantiateWithFlags(&exec_, graph, 0), "cuGraphInstantiateWithFlags");
    check(cuGraphDestroy(graph), "cuGraphDestroy");
  }
  void measure() {
    replays_.push_back(time([this] { check(cuGraphLaunch(exec_, stream_), "cuGraphLaunch"); }));
    launches_.push_back(time([this] { work(); }) / kKernels);
  }
  void print(const Way& first) const {
    std::printf("%-24s %9.3f us %+7.2f%% %9.3f us %+7.2f%%\n", name_, sharedgpu::median(replays_),
                over(replays_, first.replays_), sharedgpu::median(launches_),
                over(launches_, first.launches_));
  }

 private:
  using Times = std::vector<double>;

  void work() {
    const std::uint64_t zero = 0;
    for (int i = 0; i < kKernels; ++i) launch(fill_, kWords, stream_, {&memory_, &kWords, &zero, &zero});
  }
  template <class Call>
  double time(Call call) {
    call();
    check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kReplays; ++i) call();
    check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() /
           kReplays;
  }
  static double over(const Times& its, const Times& first) {
    Times ratios;
    for (std::size_t i = 0; i < its.size(); ++i) ratios.push_back(100 * (its[i] / first[i] - 1));
    return sharedgpu::median(ratios);
  }

  const char* name_;
  CUfunction fill_;
  CUstream stream_;
  CUdeviceptr memory_;
  CUgraphExec exec_ = nullptr;
  Times replays_, launches_;
};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(std::atoi(argv[1]), 1) : 21;
  start();
  const Kernels kernels;
  const CUstream stream = new_stream();
  // cuMemAlloc is measured twice, to show how much equal measurements vary.
  Way ways[] = {{"cuMemAlloc", kernels, stream, allocated()},
                {"cuMemAlloc again", kernels, stream, allocated()},
                {"a handle of 2 MiB", kernels, stream, mapped(2u << 20)},
                {"a handle of 64 MiB", kernels, stream, mapped(64u << 20)}};
  for (int round = 0; round < rounds; ++round)
    for (Way& way : ways) way.measure();
  std::printf("%-24s %12s %8s %12s %8s\n", "memory", "a replay", "", "a launch", "");
  for (const Way& way : ways) way.print(ways[0]);
  return 0;
}
