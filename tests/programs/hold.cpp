// SPDX-License-Identifier: Apache-2.0
// Fills device memory with a pattern, changes all of it again and again. With --verify, verifies every byte
// at the end.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;
using Clock = std::chrono::steady_clock;

namespace {

struct Options {
  std::string bytes = "75%";
  std::string of;
  unsigned blocks = 1;
  double seconds = 0;
  std::uint64_t iterations = 0;
  double kernel_ms = 0;
  double gap_ms = 0;
  std::uint64_t seed = 1;
  bool verify = false;
  bool progress = false;
  bool managed = false;
  std::uint64_t changes = ~0ull;
  std::string uniform;
};

void add_options(CommandLine& app, Options& options) {
  app.add_option("--bytes", options.bytes, "device memory to hold: a size, or a percentage of the device");
  app.add_option("--of", options.of, "what a percentage is of, where that is not cuDeviceTotalMem");
  app.add_option("--blocks", options.blocks, "allocations to hold it in").positive();
  CommandLine::Option seconds = app.add_option("--seconds", options.seconds, "how long to work").positive();
  app.add_option("--iterations", options.iterations, "how often to change the memory (default 10)")
      .excludes(seconds)
      .positive();
  app.add_option("--changes", options.changes, "of the iterations the first so many change the memory");
  app.add_option("--uniform", options.uniform, "so much memory more, that holds one word everywhere");
  app.add_option("--kernel-ms", options.kernel_ms, "extra time on the GPU per iteration").not_negative();
  app.add_option("--gap-ms", options.gap_ms, "time without work after each iteration").not_negative();
  app.add_option("--seed", options.seed, "seed of the pattern");
  app.add_flag("--verify", options.verify, "verify every byte at the end");
  app.add_flag("--managed", options.managed, "hold it as managed memory");
  app.add_flag("--progress", options.progress, "print a line a second");
}

std::size_t wanted_bytes(const Options& options) {
  std::size_t whole = 0;
  if (options.of.empty())
    check(cuDeviceTotalMem(&whole, 0), "cuDeviceTotalMem");
  else
    whole = parse_size(options.of, 0);
  return parse_size(options.bytes, whole);
}

constexpr std::uint32_t kWord = 0xabad1dea;

CUdeviceptr make_uniform(std::size_t bytes) {
  CUdeviceptr memory = 0;
  if (bytes == 0) return 0;
  check(cuMemAlloc(&memory, bytes), "cuMemAlloc");
  check(cuMemsetD32(memory, kWord, bytes / sizeof kWord), "cuMemsetD32");
  return memory;
}

bool is_uniform(CUdeviceptr memory, std::size_t bytes) {
  std::vector<std::uint32_t> words(bytes / sizeof kWord);
  if (bytes != 0) check(cuMemcpyDtoH(words.data(), memory, bytes), "cuMemcpyDtoH");
  return std::all_of(words.begin(), words.end(), [](std::uint32_t word) { return word == kWord; });
}

void run(const Options& options) {
  start();
  std::size_t bytes = wanted_bytes(options);
  Kernels kernels;
  std::vector<Buffer> buffers;
  for (unsigned i = 0; i < options.blocks; ++i) {
    const std::size_t size = bytes / options.blocks / 8 * 8;
    if (!options.managed) {
      buffers.emplace_back(kernels, size, options.seed + i);
      continue;
    }
    CUdeviceptr memory = 0;
    check(cuMemAllocManaged(&memory, size, CU_MEM_ATTACH_GLOBAL), "cuMemAllocManaged");
    buffers.emplace_back(kernels, memory, size, options.seed + i).fill(nullptr);
  }

  const std::size_t uniform_bytes = options.uniform.empty() ? 0 : parse_size(options.uniform, 0);
  const CUdeviceptr uniform = make_uniform(uniform_bytes);

  auto begin = Clock::now();
  auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  std::uint64_t iterations = options.iterations == 0 ? 10 : options.iterations;
  auto spin = static_cast<std::uint64_t>(options.kernel_ms * 1e6);
  std::uint64_t iteration = 0;
  double told = 0;
  while (options.seconds > 0 ? elapsed() < options.seconds : iteration < iterations) {
    if (iteration < options.changes)
      for (Buffer& buffer : buffers) buffer.step(iteration, nullptr);
    else
      launch(kernels["empty"], 1, nullptr, {});
    if (spin > 0) launch(kernels["spin"], 1, nullptr, {&spin});
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    ++iteration;
    if (options.progress && elapsed() - told >= 1) {
      told = elapsed();
      std::printf("hold: pid %d: %.0f s, %llu iterations over %zu MiB\n", getpid(), told,
                  static_cast<unsigned long long>(iteration), bytes >> 20);
      std::fflush(stdout);
    }
    if (options.gap_ms > 0)
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(options.gap_ms));
  }

  bool right = is_uniform(uniform, uniform_bytes);
  if (options.verify)
    for (const Buffer& buffer : buffers)
      right = buffer.verify(std::min(iteration, options.changes), nullptr) && right;
  for (Buffer& buffer : buffers) buffer.free();
  if (!right) fail("the device memory is not what the kernels made of it");
  std::printf("hold: pid %d: %llu iterations over %zu bytes in %.1f s%s\n", getpid(),
              static_cast<unsigned long long>(iteration), bytes, elapsed(),
              options.verify ? ", every byte verified" : "");
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Holds device memory, works on it, and verifies it.");
  Options options;
  add_options(app, options);
  app.parse(argc, argv);
  return status_of([&] { run(options); });
}
