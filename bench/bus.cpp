// SPDX-License-Identifier: Apache-2.0
// Measures the bus between host and GPU by copies of pinned host memory: to the GPU, from the GPU, and both
// at the same time. Prints a JSON object with bytes per second ("both": the sum of both directions), the
// GPU's memory and the GPU's name.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

// A buffer in host memory and a buffer on the GPU, and a stream for the copies between them.
class Lane {
 public:
  explicit Lane(std::size_t bytes) : bytes_(bytes) {
    check(cuMemAlloc(&device_, bytes), "cuMemAlloc");
    check(cuMemHostAlloc(&host_, bytes, 0), "cuMemHostAlloc");
  }
  void in() { check(cuMemcpyHtoDAsync(device_, host_, bytes_, stream_), "cuMemcpyHtoDAsync"); }
  void out() { check(cuMemcpyDtoHAsync(host_, device_, bytes_, stream_), "cuMemcpyDtoHAsync"); }
  void wait() { check(cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

 private:
  std::size_t bytes_;
  CUdeviceptr device_ = 0;
  void* host_ = nullptr;
  CUstream stream_ = new_stream();
};

// Returns the time of the shortest of several rounds, in seconds, since interference can only slow a round
// down.
template <class Copies>
double best(Copies&& copies) {
  using Seconds = std::chrono::duration<double>;
  double least = 0;
  for (int round = 0; round < 5; ++round) {
    auto begin = std::chrono::steady_clock::now();
    copies();
    double seconds = Seconds(std::chrono::steady_clock::now() - begin).count();
    least = round == 0 ? seconds : std::min(least, seconds);
  }
  return least;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Measures the bus between the host and the GPU.");
  std::uint64_t mib = 1024;
  app.add_option("--mib", mib, "MiB to copy each way").positive();
  app.parse(argc, argv);

  start();
  char name[128] = "";
  std::size_t total = 0;
  check(cuDeviceGetName(name, sizeof name, 0), "cuDeviceGetName");
  check(cuDeviceTotalMem(&total, 0), "cuDeviceTotalMem");
  const std::size_t bytes = mib << 20;
  Lane one(bytes);
  Lane other(bytes);
  const double in = best([&] { one.in(), one.wait(); });
  const double out = best([&] { other.out(), other.wait(); });
  const double both = best([&] { one.in(), other.out(), one.wait(), other.wait(); });
  const auto each = static_cast<double>(bytes);
  std::printf(R"({"gpu": "%s", "total_bytes": %zu, "in": %.0f, "out": %.0f, "both": %.0f})"
              "\n",
              name, total, each / in, each / out, 2 * each / both);
  return 0;
}
