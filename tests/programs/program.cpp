// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/program.h"

#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "tests/programs/kernels_ptx.h"
#include "tests/programs/pattern.h"

namespace sharedgpu::programs {

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  const char* text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s: %s: %s\n", program_invocation_short_name, call, name == nullptr ? "?" : name,
               text == nullptr ? "?" : text);
  std::exit(result == CUDA_ERROR_OUT_OF_MEMORY ? kOutOfMemory : kWrong);
}

void fail(const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, message.c_str());
  std::exit(kWrong);
}

CUcontext start() {
  check(cuInit(0), "cuInit");
  CUdevice device = 0;
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  CUcontext context = nullptr;
  check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  use(context);
  return context;
}

void use(CUcontext context) { check(cuCtxSetCurrent(context), "cuCtxSetCurrent"); }

CUstream new_stream() {
  CUstream stream = nullptr;
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

Kernels::Kernels() { check(cuModuleLoadData(&module_, kKernelsPtx), "cuModuleLoadData"); }

CUfunction Kernels::operator[](const char* name) const {
  CUfunction function = nullptr;
  check(cuModuleGetFunction(&function, module_, name), name);
  return function;
}

void launch(CUfunction kernel, std::uint64_t words, CUstream stream,
            std::initializer_list<const void*> arguments) {
  constexpr unsigned kThreads = 256;
  auto blocks = static_cast<unsigned>(std::clamp<std::uint64_t>((words + kThreads - 1) / kThreads, 1, 4096));
  std::vector<void*> parameters;
  for (const void* argument : arguments) parameters.push_back(const_cast<void*>(argument));
  check(cuLaunchKernel(kernel, blocks, 1, 1, kThreads, 1, 1, 0, stream, parameters.data(), nullptr),
        "cuLaunchKernel");
}

Buffer::Buffer(const Kernels& kernels, std::size_t bytes, std::uint64_t seed)
    : kernels_(&kernels), words_(bytes / 8), seed_(seed) {
  check(cuMemAlloc(&memory_, words_ * 8), "cuMemAlloc");
  fill(nullptr);
  // Waits, since later work in a non-blocking stream would not wait for the fill.
  check(cuStreamSynchronize(nullptr), "cuStreamSynchronize");
}

Buffer::Buffer(const Kernels& kernels, CUdeviceptr memory, std::size_t bytes, std::uint64_t seed)
    : kernels_(&kernels), memory_(memory), words_(bytes / 8), seed_(seed) {}

void Buffer::fill(CUstream stream) {
  std::uint64_t first = 0;
  launch((*kernels_)["pattern_fill"], words_, stream, {&memory_, &words_, &seed_, &first});
}

void Buffer::step(std::uint64_t iteration, CUstream stream) {
  launch((*kernels_)["pattern_step"], words_, stream, {&memory_, &words_, &iteration});
}

bool Buffer::verify(std::uint64_t steps, CUstream stream) const {
  pattern::History history;
  for (std::uint64_t i = 0; i < steps; ++i) history.add(i);

  CUdeviceptr sum = 0;
  check(cuMemAlloc(&sum, 8), "cuMemAlloc");
  check(cuMemsetD8Async(sum, 0, 8, stream), "cuMemsetD8Async");
  std::uint64_t first = 0;
  launch((*kernels_)["pattern_checksum"], words_, stream, {&memory_, &words_, &sum, &first});
  std::uint64_t device_sum = 0;
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  check(cuMemcpyDtoH(&device_sum, sum, 8), "cuMemcpyDtoH");
  check(cuMemFree(sum), "cuMemFree");

  constexpr std::uint64_t kPiece = 1 << 20;  // number of words
  std::vector<std::uint64_t> host(std::min(words_, kPiece));
  std::uint64_t wanted_sum = 0;
  std::uint64_t wrong = 0;
  for (std::uint64_t begin = 0; begin < words_; begin += kPiece) {
    std::uint64_t count = std::min(kPiece, words_ - begin);
    check(cuMemcpyDtoH(host.data(), memory_ + begin * 8, count * 8), "cuMemcpyDtoH");
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t index = begin + i;
      std::uint64_t wanted = history(pattern::fill(seed_, index));
      wanted_sum += pattern::weigh(wanted, index);
      if (host[i] == wanted) continue;
      if (wrong++ == 0)
        std::fprintf(stderr, "%s: wrong data: word %llu of buffer %llu is %016llx, not %016llx\n",
                     program_invocation_short_name, static_cast<unsigned long long>(index),
                     static_cast<unsigned long long>(seed_), static_cast<unsigned long long>(host[i]),
                     static_cast<unsigned long long>(wanted));
    }
  }
  if (wrong != 0)
    std::fprintf(stderr, "%s: wrong data: %llu of %llu words\n", program_invocation_short_name,
                 static_cast<unsigned long long>(wrong), static_cast<unsigned long long>(words_));
  if (device_sum != wanted_sum)
    std::fprintf(stderr, "%s: wrong checksum: %016llx, not %016llx\n", program_invocation_short_name,
                 static_cast<unsigned long long>(device_sum), static_cast<unsigned long long>(wanted_sum));
  return wrong == 0 && device_sum == wanted_sum;
}

void Buffer::free() {
  check(cuMemFree(memory_), "cuMemFree");
  memory_ = 0;
}

void exercise(Buffer& buffer, std::uint64_t steps) {
  for (std::uint64_t i = 0; i < steps; ++i) {
    buffer.step(i, nullptr);
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (!buffer.verify(steps, nullptr)) fail("the device memory is not what the kernels made of it");
}

void exercise(std::size_t bytes, std::uint64_t seed, std::uint64_t steps) {
  Kernels kernels;
  Buffer buffer(kernels, bytes, seed);
  exercise(buffer, steps);
  buffer.free();
}

int status_of(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) != child)
    if (errno != EINTR) fail("waitpid failed");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void expect(const std::string& what, int status) {
  if (status != 0) fail(what + ": status " + std::to_string(status));
}

std::size_t parse_size(const std::string& text, std::size_t whole) {
  char* end = nullptr;
  double number = std::strtod(text.c_str(), &end);
  std::string unit = end;
  struct Unit {
    const char* name;
    double factor;
  };
  const Unit units[] = {{"", 1},
                        {"%", static_cast<double>(whole) / 100},
                        {"KiB", 1024.},
                        {"MiB", 1048576.},
                        {"GiB", 1073741824.}};
  for (const Unit& known : units)
    if (end != text.c_str() && unit == known.name && number > 0)
      return static_cast<std::size_t>(number * known.factor);
  throw std::invalid_argument("'" + text + "' is not a size (such as 512MiB, 2GiB, 75%)");
}

}  // namespace sharedgpu::programs
