// SPDX-License-Identifier: Apache-2.0
// Holds device memory while it allocates more and more host memory; verifies every byte of both.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

struct Options {
  std::string bytes = "64MiB";
  std::string refused;
  std::string after;
  std::string at_once;
  std::string slowly;
  std::uint64_t step_ms = 100;
  bool working = false;
};

constexpr std::size_t kStep = std::size_t{1} << 20;

// Host memory in pieces of one MiB. All bytes of a piece have the same value, which depends on the piece's
// number.
class Ram {
 public:
  void take() {
    void* const piece = mmap(nullptr, kStep, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (piece == MAP_FAILED) fail("no host memory");
    pieces_.push_back(static_cast<unsigned char*>(piece));
    std::memset(piece, value(pieces_.size() - 1), kStep);
  }
  std::size_t size() const { return pieces_.size() * kStep; }
  bool right() const {
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      if (!std::all_of(pieces_[i], pieces_[i] + kStep, [i](unsigned char byte) { return byte == value(i); }))
        return false;
    return true;
  }

 private:
  static unsigned char value(std::size_t i) { return static_cast<unsigned char>(i * 7 + 1); }
  std::vector<unsigned char*> pieces_;
};

std::size_t bytes_of(const std::string& size) { return size.empty() ? 0 : parse_size(size, 0); }

void expect_refusal(const std::string& size) {
  CUdeviceptr memory = 0;
  if (cuMemAlloc(&memory, parse_size(size, 0)) != CUDA_ERROR_OUT_OF_MEMORY) fail(size + " were not refused");
}

void nap(std::uint64_t milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

void run(const Options& options) {
  start();
  Kernels kernels;
  if (!options.refused.empty()) expect_refusal(options.refused);
  Buffer buffer(kernels, parse_size(options.bytes, 0), 1);
  Ram ram;
  const auto take_at_once = [&] {
    while (ram.size() < bytes_of(options.at_once)) ram.take();
  };
  if (options.after.empty()) take_at_once();
  std::printf("ram: pid %d: ready\n", getpid());
  std::fflush(stdout);
  while (!options.after.empty() && access(options.after.c_str(), F_OK) != 0) nap(20);

  take_at_once();
  std::uint64_t steps = 0;
  for (const std::size_t all = ram.size() + bytes_of(options.slowly); ram.size() < all;
       nap(options.step_ms)) {
    ram.take();
    if (options.working) buffer.step(steps++, nullptr);
  }
  if (!ram.right()) fail("the host memory is not what it was");
  if (!buffer.verify(steps, nullptr)) fail("the device memory is not what the kernels made of it");
  buffer.free();
  std::printf("ram: pid %d: %zu MiB of host memory taken, every byte verified\n", getpid(), ram.size() >> 20);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Holds device memory and takes more and more host memory meanwhile; verifies both.");
  Options options;
  app.add_option("--bytes", options.bytes, "device memory to hold");
  app.add_option("--refused", options.refused, "device memory whose allocation must fail first");
  app.add_option("--after", options.after, "is ready before it takes host memory, which waits for this file");
  app.add_option("--at-once", options.at_once, "host memory to take at once");
  app.add_option("--slowly", options.slowly, "host memory to take after that, MiB by MiB");
  app.add_option("--step-ms", options.step_ms, "how long to rest after each of those");
  app.add_flag("--working", options.working, "work on the GPU at each of those");
  app.parse(argc, argv);
  return status_of([&] { run(options); });
}
