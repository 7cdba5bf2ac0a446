// SPDX-License-Identifier: Apache-2.0
// Measures the speed of mapping and touching, pinning, and freeing host memory for swap, for several slab
// sizes and numbers of touching threads. The pages are on the GPU's NUMA node. Also measures how much these
// operations delay a program that keeps the GPU busy at the same time: milliseconds of GPU idle time per GiB.
// At the end, measures the host pool (host_pool.h) in its hurried mode, in which it touches and pins memory
// at the same time.
//
//   bench_pin [GIBIBYTES]      default: 8
#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "interposer/memory/driver_device.h"
#include "interposer/memory/host_budget.h"
#include "interposer/memory/host_pool.h"
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

// The program that keeps the GPU busy. The program queues as much work as a tenant may queue while others
// wait.
class Beside {
 public:
  Beside(CUcontext context, CUdeviceptr block, Bytes size)
      : thread_([this, context, block, size] { run(context, block, size); }) {}
  ~Beside() {
    over_ = true;
    thread_.join();
  }
  // The GPU's idle time since `begin`, in milliseconds.
  double lost(Clock::time_point begin, std::uint64_t done_then) const {
    const double passed = milliseconds(Clock::now() - begin);
    return std::max(passed - static_cast<double>(done_ - done_then) * each_, 0.0);
  }
  std::uint64_t done() const { return done_; }
  // Measures the time of one piece of work while nothing else runs.
  void calibrate() {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const std::uint64_t before = done_;
    const Clock::time_point begin = Clock::now();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    each_ = milliseconds(Clock::now() - begin) / static_cast<double>(done_ - before);
  }

 private:
  static constexpr std::size_t kAhead = 10;  // number of queued pieces of work, of about 2 ms each

  void run(CUcontext context, CUdeviceptr block, Bytes size) {
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    CUstream stream = nullptr;
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    std::array<CUevent, kAhead> events{};
    for (CUevent& event : events) check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    for (std::size_t i = 0; !over_; i = (i + 1) % kAhead) {
      check(cuEventSynchronize(events[i]), "cuEventSynchronize");
      ++done_;
      for (int part = 0; part < 20; ++part)
        check(cuMemsetD32Async(block, 1, size.count / 4, stream), "cuMemsetD32Async");
      check(cuEventRecord(events[i], stream), "cuEventRecord");
    }
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  std::atomic<bool> over_{false};
  std::atomic<std::uint64_t> done_{0};
  double each_ = 0;
  std::thread thread_;
};

// The duration of a phase, and the GPU's idle time within it.
class Phase {
 public:
  explicit Phase(const Beside& beside) : beside_(beside), done_(beside.done()) {}
  void print(Bytes size) const {
    const double took = milliseconds(Clock::now() - begin_);
    // if the program was delayed, it counts completed pieces late; this pause lets it catch up
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const double gibibytes = static_cast<double>(size.count) / (1ull << 30);
    std::printf(" %8.2f %8.2f", static_cast<double>(size.count) / 1e6 / took,
                beside_.lost(begin_, done_) / gibibytes);
  }

 private:
  const Beside& beside_;
  Clock::time_point begin_ = Clock::now();
  std::uint64_t done_;
};

void measure(HostSystem& host, const Beside& beside, Bytes whole, Bytes slab, unsigned threads) {
  std::printf("%6llu %8u", static_cast<unsigned long long>(slab.count >> 20), threads);
  std::vector<std::byte*> slabs;
  const Phase touching(beside);
  for (Bytes have; have < whole; have += slab) {
    slabs.push_back(host.map(slab, threads));
    if (slabs.back() == nullptr) return check(CUDA_ERROR_OUT_OF_MEMORY, "mmap");
  }
  touching.print(whole);
  const Phase pinning(beside);
  for (std::byte* data : slabs)
    check(cuMemHostRegister(data, slab.count, CU_MEMHOSTREGISTER_PORTABLE), "cuMemHostRegister");
  pinning.print(whole);
  const Phase giving(beside);
  for (std::byte* data : slabs) {
    check(cuMemHostUnregister(data), "cuMemHostUnregister");
    host.unmap(data, slab);
  }
  giving.print(whole);
  std::printf("\n");
  std::fflush(stdout);
}

struct Unlimited final : HostBudget {
  Bytes room() const override { return {~0ull}; }
  bool tight(Bytes /*more*/) const override { return false; }
  bool used_up() const override { return false; }
  Bytes used() const override { return {}; }
  std::optional<Bytes> limit() const override { return std::nullopt; }
  std::optional<Bytes> job_limit() const override { return std::nullopt; }
};

void measure_pool(Device& device, HostSystem& host, const Beside& beside, Bytes whole) {
  const Unlimited budget;
  HostPool pool(device, budget, host, mebibytes(2));
  std::printf("%15s", "in a hurry");
  const Phase growing(beside);
  pool.hurry(whole);
  if (!pool.take(whole)) return check(CUDA_ERROR_OUT_OF_MEMORY, "HostPool::take");
  growing.print(whole);
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  const Bytes whole = gibibytes(argc > 1 ? std::max(std::atoi(argv[1]), 1) : 8);
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUdeviceptr block = 0;
  check(cuInit(0), "cuInit");
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  constexpr Bytes kBlock = mebibytes(256);
  check(cuMemAlloc(&block, kBlock.count), "cuMemAlloc");

  DriverCalls calls;
  calls.cuDeviceGetAttribute = cuDeviceGetAttribute;
  calls.cuMemGetAllocationGranularity = cuMemGetAllocationGranularity;
  calls.cuCtxPushCurrent_v2 = cuCtxPushCurrent;
  calls.cuCtxPopCurrent_v2 = cuCtxPopCurrent;
  calls.cuMemHostRegister_v2 = cuMemHostRegister;
  calls.cuMemHostUnregister = cuMemHostUnregister;
  DriverDevice driver(calls, device);
  driver.use_context(context);
  const std::optional<unsigned> node = driver.host_node();
  LinuxHost host(node);
  std::printf("NUMA node %d; GB/s, and ms lost per GiB\n", node ? static_cast<int>(*node) : -1);
  std::printf("%6s %8s %8s %8s %8s %8s %8s %8s\n", "MiB", "threads", "touch", "lost", "pin", "lost", "back",
              "lost");
  Beside beside(context, block, kBlock);
  beside.calibrate();
  for (const unsigned slab : {2u, 16u, 128u, 512u})
    for (const unsigned threads : {1u, 8u}) {
      if (slab < 16 && threads > 1) continue;
      measure(host, beside, whole, mebibytes(slab), threads);
    }
  measure_pool(driver, host, beside, whole);
  return 0;
}
