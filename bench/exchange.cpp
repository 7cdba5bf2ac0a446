// SPDX-License-Identifier: Apache-2.0
// Measures the two ways in which memory of a program larger than the GPU can change places between GPU and
// host. One way maps device memory and host memory at an address (backend `swap`). The other way prefetches
// managed memory (backend `managed`). By default, memory is moved in handles of 64 MiB, as under sharedgpu.
// Each way is measured on an idle GPU, beside kernels that only compute, and beside kernels that read and
// write memory. Prints a JSON object for each measurement: medians, in milliseconds for one handle, and
// "lost", the part of this time by which the kernels ended later.
#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/median.h"
#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

using Clock = std::chrono::steady_clock;
double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

CUevent event_in(CUstream stream) {
  CUevent event = nullptr;
  check(cuEventCreate(&event, 0), "cuEventCreate");
  check(cuEventRecord(event, stream), "cuEventRecord");
  return event;
}

double between(CUevent first, CUevent last) {
  float time = 0;
  check(cuEventSynchronize(last), "cuEventSynchronize");
  check(cuEventElapsedTime(&time, first, last), "cuEventElapsedTime");
  return time;
}

// Kernels in a stream of their own, which do not use the memory that changes places.
class Beside {
 public:
  Beside(const Kernels& kernels, const std::string& kind, std::size_t bytes, unsigned steps)
      : kind_(kind),
        steps_(steps),
        spin_(kernels["spin"]),
        buffer_(kernels, bytes, 1),
        stream_(new_stream()) {
    if (kind_ == "idle") return;
    step();  // the first launch also loads the kernel
    const CUevent first = event_in(stream_);
    for (unsigned i = 0; i < steps_; ++i) step();
    alone_ = between(first, event_in(stream_));
  }
  ~Beside() { buffer_.free(); }
  // Does `work` while kernels run. Returns the time by which the kernels ended later than without `work`, as
  // a fraction of the time of `work`.
  double lost_by(const std::function<void()>& work) {
    if (kind_ == "idle") return work(), 0;
    const CUevent first = event_in(stream_);
    for (unsigned i = 0; i < steps_; ++i) step();
    const CUevent last = event_in(stream_);
    const Clock::time_point begin = Clock::now();
    work();
    const double worked = milliseconds(Clock::now() - begin);
    if (cuEventQuery(last) == CUDA_SUCCESS)
      fail("the kernels ended before the work beside them; raise --steps");
    return (between(first, last) - alone_) / worked;
  }

 private:
  void step() {
    const std::uint64_t nanoseconds = 1'000'000;
    if (kind_ == "compute") launch(spin_, 1 << 20, stream_, {&nanoseconds});
    if (kind_ == "memory") buffer_.step(iteration_++, stream_);
  }

  std::string kind_;
  unsigned steps_;
  CUfunction spin_;
  Buffer buffer_;
  CUstream stream_;
  std::uint64_t iteration_ = 0;
  double alone_ = 0;  // time of the steps while nothing else runs, in milliseconds
};

// Handles of device memory and of host memory, either of which can be mapped at each address. `together`
// handles are unmapped by one call, and become accessible by one call.
class Mapped {
 public:
  Mapped(std::size_t bytes, unsigned count, unsigned together) : bytes_(bytes), together_(together) {
    check(cuMemAddressReserve(&base_, bytes * count, 0, 0, 0), "cuMemAddressReserve");
    const auto host_numa = static_cast<CUmemLocationType>(3);  // CU_MEM_LOCATION_TYPE_HOST_NUMA, CUDA 12.2
    for (unsigned i = 0; i < count; ++i) {
      device_.push_back(create(CU_MEM_LOCATION_TYPE_DEVICE));
      host_.push_back(create(host_numa));
    }
    for (unsigned i = 0; i < count; i += together_) map(i, device_), allow(i);
  }
  // Times for one handle, in milliseconds.
  struct Times {
    std::vector<double> unmap, map, allow;
  };
  // Lets each handle leave the GPU and return. Adds the times of the calls to `away` and `back`.
  void exchange(Times& away, Times& back) {
    for (unsigned i = 0; i < device_.size(); i += together_) remap(i, host_, away);
    for (unsigned i = 0; i < device_.size(); i += together_) remap(i, device_, back);
  }
  // Creates and releases device memory of a handle's size. Returns the time.
  double create_and_release() const {
    const Clock::time_point begin = Clock::now();
    check(cuMemRelease(create(CU_MEM_LOCATION_TYPE_DEVICE)), "cuMemRelease");
    return milliseconds(Clock::now() - begin);
  }
  // Lets each handle leave and return. This thread moves the first half of the handles. At the same time,
  // another thread moves the second half. Returns the time for one handle.
  double exchange_by_two() {
    const auto half = [this](unsigned begin) {
      Times ignored;
      for (const Handles* handles : {&host_, &device_})
        for (unsigned i = begin; i < begin + device_.size() / 2; i += together_) remap(i, *handles, ignored);
    };
    CUcontext context = nullptr;
    check(cuCtxGetCurrent(&context), "cuCtxGetCurrent");
    const Clock::time_point begin = Clock::now();
    std::thread other([&] {
      check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
      half(static_cast<unsigned>(device_.size() / 2));
    });
    half(0);
    other.join();
    return milliseconds(Clock::now() - begin) / static_cast<double>(device_.size());
  }

 private:
  using Handles = std::vector<CUmemGenericAllocationHandle>;
  CUmemGenericAllocationHandle create(CUmemLocationType where) const {
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = where;
    CUmemGenericAllocationHandle handle = 0;
    check(cuMemCreate(&handle, bytes_, &wanted, 0), "cuMemCreate");
    return handle;
  }
  CUdeviceptr at(unsigned i) const { return base_ + i * bytes_; }
  void unmap(unsigned first) const { check(cuMemUnmap(at(first), together_ * bytes_), "cuMemUnmap"); }
  void map(unsigned first, const Handles& handles) const {
    for (unsigned i = first; i < first + together_; ++i)
      check(cuMemMap(at(i), bytes_, 0, handles[i], 0), "cuMemMap");
  }
  void allow(unsigned first) const {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check(cuMemSetAccess(at(first), together_ * bytes_, &access, 1), "cuMemSetAccess");
  }
  void remap(unsigned first, const Handles& handles, Times& times) const {
    const Clock::time_point begin = Clock::now();
    unmap(first);
    const Clock::time_point unmapped = Clock::now();
    map(first, handles);
    const Clock::time_point mapped = Clock::now();
    allow(first);
    const Clock::time_point allowed = Clock::now();
    times.unmap.push_back(milliseconds(unmapped - begin) / together_);
    times.map.push_back(milliseconds(mapped - unmapped) / together_);
    times.allow.push_back(milliseconds(allowed - mapped) / together_);
  }

  std::size_t bytes_;
  unsigned together_;
  CUdeviceptr base_ = 0;
  Handles device_, host_;
};

// Managed memory that prefetches move in parts of `bytes`.
class Managed {
 public:
  Managed(const Kernels& kernels, std::size_t bytes, unsigned count)
      : bytes_(bytes), count_(count), out_(new_stream()), in_(new_stream()) {
    check(cuMemAllocManaged(&base_, bytes * count * 2, CU_MEM_ATTACH_GLOBAL), "cuMemAllocManaged");
    Buffer(kernels, base_, bytes * count * 2, 1).fill(nullptr);
    check(cuStreamSynchronize(nullptr), "cuStreamSynchronize");
    for (unsigned i = count; i < 2 * count; ++i) move(i, kHost, out_);
    check(cuStreamSynchronize(out_), "cuStreamSynchronize");
  }
  // move_out() moves the half of the memory that is on the GPU to the host. move_in() moves the other half to
  // the GPU. move_both() does both at the same time. Each returns the time of one part.
  double move_out() {
    return timed([&] { half(resident_, kHost, out_); });
  }
  double move_in() {
    return timed([&] { half(!resident_, kDevice, in_), resident_ = !resident_; });
  }
  double move_both() {
    return timed([&] {
      for (unsigned i = 0; i < count_; ++i) {
        move(first(resident_) + i, kHost, out_);
        move(first(!resident_) + i, kDevice, in_);
      }
      resident_ = !resident_;
    });
  }

 private:
  static constexpr int kHost = -1, kDevice = 0;
  unsigned first(bool second_half) const { return second_half ? count_ : 0; }
  void half(bool second_half, int where, CUstream stream) {
    for (unsigned i = 0; i < count_; ++i) move(first(second_half) + i, where, stream);
  }
  void move(unsigned i, int where, CUstream stream) {
    const CUdeviceptr at = base_ + i * bytes_;
#if CUDA_VERSION >= 13000
    const CUmemLocation place = where == kHost
                                    ? CUmemLocation{.type = CU_MEM_LOCATION_TYPE_HOST, .id = 0}
                                    : CUmemLocation{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = where};
    check(cuMemPrefetchAsync(at, bytes_, place, 0, stream), "cuMemPrefetchAsync");
#else
    check(cuMemPrefetchAsync(at, bytes_, where == kHost ? CU_DEVICE_CPU : where, stream),
          "cuMemPrefetchAsync");
#endif
  }
  double timed(const std::function<void()>& work) const {
    const Clock::time_point begin = Clock::now();
    work();
    check(cuStreamSynchronize(out_), "cuStreamSynchronize");
    check(cuStreamSynchronize(in_), "cuStreamSynchronize");
    return milliseconds(Clock::now() - begin) / count_;
  }

  std::size_t bytes_;
  unsigned count_;
  CUstream out_, in_;
  CUdeviceptr base_ = 0;
  bool resident_ = false;  // whether the second half is the one on the GPU
};

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Measures mappings and prefetches of memory that changes places between GPU and host.");
  unsigned mib = 64, count = 16, together = 1, rounds = 5, steps = 400;
  app.add_option("--mib", mib, "MiB of a handle").positive();
  app.add_option("--count", count, "number of handles").positive();
  app.add_option("--together", together, "number of handles that one call unmaps; twice this divides --count")
      .positive();
  app.add_option("--rounds", rounds, "number of rounds").positive();
  app.add_option("--steps", steps, "number of kernels beside each measurement").positive();
  app.parse(argc, argv);
  if (count % (2 * together) != 0) fail("twice --together does not divide --count");
  const std::size_t bytes = std::size_t{mib} << 20;

  start();
  const Kernels kernels;
  Mapped mapped(bytes, count, together);
  Managed managed(kernels, bytes, count);
  for (const std::string kind : {"idle", "compute", "memory"}) {
    Beside beside(kernels, kind, std::size_t{1} << 30, steps);
    Mapped::Times away, back;
    std::vector<double> lost, create, by_two, out, in, both, out_lost, in_lost, both_lost;
    for (unsigned round = 0; round < rounds; ++round) {
      lost.push_back(beside.lost_by([&] { mapped.exchange(away, back); }));
      beside.lost_by([&] {
        create.push_back(mapped.create_and_release());
        by_two.push_back(mapped.exchange_by_two());
      });
      out_lost.push_back(beside.lost_by([&] { out.push_back(managed.move_out()); }));
      in_lost.push_back(beside.lost_by([&] { in.push_back(managed.move_in()); }));
      both_lost.push_back(beside.lost_by([&] { both.push_back(managed.move_both()); }));
    }
    const auto remap = [&](const char* to, const Mapped::Times& times) {
      std::printf(
          R"({"beside": "%s", "way": "map", "to": "%s", "mib": %u, "unmap": %.3f, "map": %.3f, "access": %.3f, )"
          R"("lost": %.2f})"
          "\n",
          kind.c_str(), to, mib, sharedgpu::median(times.unmap), sharedgpu::median(times.map),
          sharedgpu::median(times.allow), sharedgpu::median(lost));
    };
    remap("host", away);
    remap("gpu", back);
    std::printf(
        R"({"beside": "%s", "way": "map", "mib": %u, "create and release": %.3f, "there and back, two threads": %.3f})"
        "\n",
        kind.c_str(), mib, sharedgpu::median(create), sharedgpu::median(by_two));
    const auto prefetch = [&](const char* to, const std::vector<double>& times,
                              const std::vector<double>& parts) {
      std::printf(R"({"beside": "%s", "way": "prefetch", "to": "%s", "mib": %u, "time": %.3f, "lost": %.2f})"
                  "\n",
                  kind.c_str(), to, mib, sharedgpu::median(times), sharedgpu::median(parts));
    };
    prefetch("host", out, out_lost);
    prefetch("gpu", in, in_lost);
    prefetch("both at once", both, both_lost);
  }
  return 0;
}
