// SPDX-License-Identifier: Apache-2.0
// How fast host memory for swap can be had: mapped, touched and pinned, by the size of a slab and the number
// of threads that touch it, the pages on the GPU's NUMA node. And what pinning costs a program that launches
// kernels meanwhile: the longest time that a small copy to the device took.
//
//   bench_pin [GIBIBYTES]      default: 8
#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "interposer/memory/driver_device.h"
#include "interposer/memory/host_system.h"

namespace {

using namespace sharedgpu;
using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "bench_pin: %s: error %d\n", what, static_cast<int>(result));
  std::exit(1);
}

// The program beside: copies a word to the device again and again.
class Beside {
 public:
  Beside(CUcontext context, CUdeviceptr word) : thread_([this, context, word] { run(context, word); }) {}
  ~Beside() {
    over_ = true;
    thread_.join();
  }
  // In milliseconds, since it was last asked.
  double longest() { return longest_.exchange(0); }

 private:
  void run(CUcontext context, CUdeviceptr word) {
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    while (!over_) {
      const Clock::time_point begin = Clock::now();
      check(cuMemsetD32(word, 1, 1), "cuMemsetD32");
      check(cuCtxSynchronize(), "cuCtxSynchronize");
      longest_ = std::max(longest_.load(), milliseconds(Clock::now() - begin));
    }
  }
  std::atomic<bool> over_{false};
  std::atomic<double> longest_{0};
  std::thread thread_;
};

struct Slab {
  std::byte* data;
  Bytes size;
};

void measure(HostSystem& host, Beside& beside, Bytes whole, Bytes slab, unsigned threads) {
  std::vector<Slab> slabs;
  Clock::duration touching{};
  Clock::duration pinning{};
  beside.longest();
  for (Bytes have; have < whole; have += slab) {
    const Clock::time_point begin = Clock::now();
    std::byte* const data = host.map(slab, threads);
    if (data == nullptr) return check(CUDA_ERROR_OUT_OF_MEMORY, "mmap");
    const Clock::time_point touched = Clock::now();
    check(cuMemHostRegister(data, slab.count, CU_MEMHOSTREGISTER_PORTABLE), "cuMemHostRegister");
    touching += touched - begin;
    pinning += Clock::now() - touched;
    slabs.push_back({data, slab});
  }
  const double worst = beside.longest();
  const Clock::time_point begin = Clock::now();
  for (const Slab& each : slabs) {
    check(cuMemHostUnregister(each.data), "cuMemHostUnregister");
    host.unmap(each.data, each.size);
  }
  const double gigabytes = static_cast<double>(whole.count) / 1e9;
  std::printf("%6llu %8u %9.2f %9.2f %9.2f %9.2f %12.2f\n", static_cast<unsigned long long>(slab.count >> 20),
              threads, gigabytes / milliseconds(touching) * 1e3, gigabytes / milliseconds(pinning) * 1e3,
              gigabytes / milliseconds(touching + pinning) * 1e3,
              gigabytes / milliseconds(Clock::now() - begin) * 1e3, worst);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const Bytes whole = gibibytes(argc > 1 ? std::max(std::atoi(argv[1]), 1) : 8);
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUdeviceptr word = 0;
  check(cuInit(0), "cuInit");
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(cuMemAlloc(&word, 4), "cuMemAlloc");

  DriverCalls calls;
  calls.cuDeviceGetAttribute = cuDeviceGetAttribute;
  calls.cuMemGetAllocationGranularity = cuMemGetAllocationGranularity;
  const std::optional<unsigned> node = DriverDevice(calls, device).host_node();
  LinuxHost host(node);
  std::printf("NUMA node %d; GB/s, and the longest a word took beside it in ms\n",
              node ? static_cast<int>(*node) : -1);
  std::printf("%6s %8s %9s %9s %9s %9s %12s\n", "MiB", "threads", "touch", "pin", "both", "back", "beside");
  Beside beside(context, word);
  for (const unsigned slab : {2u, 16u, 64u, 128u, 512u})
    for (const unsigned threads : {1u, 2u, 4u, 8u}) {
      if (slab < 16 && threads > 1) continue;
      measure(host, beside, whole, mebibytes(slab), threads);
    }
  return 0;
}
