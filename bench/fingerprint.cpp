// SPDX-License-Identifier: Apache-2.0
// Checks the fingerprint kernel on this GPU, and measures its speed. Compares its results with those of
// fingerprint.h on the CPU, tries contents that must have different fingerprints, and fingerprints GIBIBYTES
// of memory in handles of 64 MiB.
//
//   bench_fingerprint [GIBIBYTES [CHANGES]]      default: 8, 1000
//
// The exit status is 0 only if all checks succeed.
#define __CUDA_API_VERSION_INTERNAL
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "interposer/memory/fingerprint_kernel.h"
#include "interposer/memory/fingerprint_launcher.h"

using namespace sharedgpu;

namespace {

using Clock = std::chrono::steady_clock;

constexpr Bytes kHandle = mebibytes(64);
constexpr int kRounds = 7;

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  std::fprintf(stderr, "bench_fingerprint: %s: %s\n", call, name == nullptr ? "?" : name);
  std::exit(1);
}

int wrong = 0;
void expect(bool good, const char* what) {
  std::printf("%-70s %s\n", what, good ? "yes" : "NO");
  if (!good) ++wrong;
}

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Device memory in handles, and the launcher of the kernel that fingerprints it.
struct Gpu {
  explicit Gpu(std::size_t count) {
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    CUcontext context = nullptr;
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    CUdeviceptr all = 0;
    check(cuMemAlloc_v2(&all, count * kHandle.count), "cuMemAlloc");
    for (std::size_t i = 0; i < count; ++i) handles.push_back({all + i * kHandle.count, kHandle});
    calls.cuMemsetD32Async = &cuMemsetD32Async;
    calls.cuModuleLoadData = &cuModuleLoadData;
    calls.cuModuleUnload = &cuModuleUnload;
    calls.cuModuleGetFunction = &cuModuleGetFunction;
    calls.cuLaunchKernel = &cuLaunchKernel;
    calls.cuStreamSynchronize = &cuStreamSynchronize;
    calls.cuMemHostAlloc = &cuMemHostAlloc;
    calls.cuMemFreeHost = &cuMemFreeHost;
  }
  Fingerprint look(CUdeviceptr address, Bytes size) {
    Fingerprint found;
    const Look range{address, size};
    check(cuCtxSynchronize(), "cuCtxSynchronize");  // waits for writes to the memory
    check(launcher.look(stream, {&range, 1}, &found), "look");
    return found;
  }
  Fingerprint look(std::size_t i) { return look(handles[i].address, kHandle); }
  std::uint32_t word_at(CUdeviceptr address) {
    std::uint32_t word = 0;
    check(cuMemcpyDtoH_v2(&word, address, sizeof word), "cuMemcpyDtoH");
    return word;
  }
  void set_word(CUdeviceptr address, std::uint32_t word) {
    check(cuMemcpyHtoD_v2(address, &word, sizeof word), "cuMemcpyHtoD");
  }

  CUdevice device = 0;
  CUstream stream = nullptr;
  DriverCalls calls;
  FingerprintLauncher launcher{calls};
  std::vector<Look> handles;
};

void verify(Gpu& gpu, const std::vector<std::byte>& data, int changes) {
  const CUdeviceptr base = gpu.handles[0].address;
  const Fingerprint first = gpu.look(0);
  bool same = true;
  for (const Bytes size : {mebibytes(2), mebibytes(6), mebibytes(64)})
    same &= gpu.look(base, size) == fingerprint::of(*gpu.launcher.key(), data.data(), size);
  expect(same, "the GPU finds what the CPU finds");
  bool everywhere = true;
  for (std::size_t i = 1; i < gpu.handles.size(); ++i) everywhere &= gpu.look(i) == first;
  expect(everywhere, "equal contents are the same at each address");

  std::mt19937_64 random(5);
  int unseen = 0;
  for (int i = 0; i < changes; ++i) {
    const CUdeviceptr at = base + random() % (kHandle.count / 4) * 4;
    const std::uint32_t before = gpu.word_at(at);
    gpu.set_word(at, before ^ (1u << random() % 32));
    const Fingerprint other = gpu.look(0);
    unseen += other.hash[0] == first.hash[0] || other.hash[1] == first.hash[1] ? 1 : 0;
    gpu.set_word(at, before);
  }
  expect(unseen == 0, "a change of one bit is seen in both halves");
  unseen = 0;
  for (int i = 0; i < changes; ++i) {
    // Half of the distances are powers of two, since a mistake in the kernel's use of positions may show only
    // at such distances.
    const std::uint64_t step = i % 2 == 0 ? 4ull << (i / 2 % 24) : random() % (kHandle.count / 4) * 4;
    const CUdeviceptr a = base + random() % ((kHandle.count - step) / 4) * 4;
    const std::uint32_t one = gpu.word_at(a);
    const std::uint32_t two = gpu.word_at(a + step);
    if (one == two) continue;
    gpu.set_word(a, two);
    gpu.set_word(a + step, one);
    const Fingerprint other = gpu.look(0);
    unseen += other.hash[0] == first.hash[0] || other.hash[1] == first.hash[1] ? 1 : 0;
    gpu.set_word(a, one);
    gpu.set_word(a + step, two);
  }
  expect(unseen == 0, "two words that change places are seen in both halves");
  expect(gpu.look(0) == first, "what is as before has the fingerprint of before");

  const CUdeviceptr last = gpu.handles.back().address;
  const Bytes size = kHandle;
  check(cuMemsetD32_v2(last, 0xabad1dea, size.count / 4), "cuMemsetD32");
  const Fingerprint uniform = gpu.look(last, size);
  expect(uniform.uniform && uniform.value == 0xabad1dea, "one word everywhere is uniform");
  bool seen = true;
  for (const std::uint64_t at : {std::uint64_t{0}, size.count / 2, size.count - 4}) {
    gpu.set_word(last + at, 0xabad1deb);
    seen &= !gpu.look(last, size).uniform;
    gpu.set_word(last + at, 0xabad1dea);
  }
  expect(seen, "one bit of one word less is not");
  check(cuMemcpyDtoD_v2(last, base, size.count), "cuMemcpyDtoD");
}

void measure(Gpu& gpu) {
  const std::size_t group = Device::kMostLooked.count / kHandle.count;
  std::vector<double> rounds;
  std::vector<Fingerprint> found(group);
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < gpu.handles.size(); i += group) {
      const std::span<const Look> some(&gpu.handles[i], std::min(group, gpu.handles.size() - i));
      check(gpu.launcher.look(gpu.stream, some, found.data()), "look");
    }
    rounds.push_back(since(begin));
  }
  std::sort(rounds.begin(), rounds.end());
  const auto bytes = static_cast<double>(gpu.handles.size() * kHandle.count);
  const double median = rounds[rounds.size() / 2];
  std::printf("%zu handles of 64 MiB, %zu at a time: %.2f ms (best %.2f), %.0f GB/s, %.2f ms for 16 GiB\n",
              gpu.handles.size(), group, median * 1e3, rounds.front() * 1e3, bytes / median / 1e9,
              median / bytes * static_cast<double>(gibibytes(16).count) * 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  const int gibibytes_wanted = argc > 1 ? std::atoi(argv[1]) : 8;
  if (gibibytes_wanted < 1) {
    std::fprintf(stderr, "usage: bench_fingerprint [GIBIBYTES [CHANGES]]\n");
    return 1;
  }
  Gpu gpu(static_cast<std::size_t>(gibibytes_wanted) * 16);
  char name[128] = "";
  check(cuDeviceGetName(name, sizeof name, gpu.device), "cuDeviceGetName");
  std::vector<std::byte> data(kHandle.count);
  std::mt19937_64 random(4);
  for (std::size_t i = 0; i < data.size(); i += 8) {
    const std::uint64_t word = random();
    std::memcpy(&data[i], &word, sizeof word);
  }
  for (const Look& handle : gpu.handles)
    check(cuMemcpyHtoD_v2(handle.address, data.data(), data.size()), "cuMemcpyHtoD");

  const auto begin = Clock::now();
  gpu.look(gpu.handles[0].address, mebibytes(2));
  std::printf("%s: %.1f ms until the first fingerprint (the kernel is compiled, or found in a cache)\n", name,
              since(begin) * 1e3);
  verify(gpu, data, argc > 2 ? std::atoi(argv[2]) : 1000);
  measure(gpu);
  gpu.launcher.unload();
  return wrong == 0 ? 0 : 1;
}
