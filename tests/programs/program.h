// SPDX-License-Identifier: Apache-2.0
// Shared parts of the test programs: checked driver calls, a context, the kernels, a buffer, sizes as text.
#pragma once

#include <cuda.h>
#include <sys/types.h>

#include <cstdint>
#include <exception>
#include <initializer_list>
#include <string>
#include <vector>

namespace sharedgpu::programs {

// Exit statuses of all programs. CLI11 uses statuses above 100 for bad options.
inline constexpr int kWrong = 1;        // a check failed, or a CUDA error other than CUDA_ERROR_OUT_OF_MEMORY
inline constexpr int kOutOfMemory = 2;  // CUDA_ERROR_OUT_OF_MEMORY

// On an error prints "PROGRAM: CALL: CUDA_ERROR_NAME: text" to stderr and exits with one of the statuses
// above.
void check(CUresult result, const char* call);
// Prints "PROGRAM: MESSAGE" to stderr and exits with kWrong.
[[noreturn]] void fail(const std::string& message);

// The result of main(): runs `work`; an exception counts as failure.
template <class Work>
int status_of(Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    fail(error.what());
  }
  return 0;
}

// Calls cuInit, and makes the primary context of device 0 current.
CUcontext start();
// Makes `context` current in the calling thread.
void use(CUcontext context);
// Creates a non-blocking stream in the current context. The caller may destroy it.
CUstream new_stream();

class Kernels {
 public:
  Kernels();
  CUfunction operator[](const char* name) const;

 private:
  CUmodule module_ = nullptr;
};

// Launches `kernel` over `words` elements on `stream`.
void launch(CUfunction kernel, std::uint64_t words, CUstream stream,
            std::initializer_list<const void*> arguments);

// Device memory filled with a pattern that is then changed step by step.
class Buffer {
 public:
  Buffer(const Kernels& kernels, std::size_t bytes, std::uint64_t seed);  // allocates, fills and waits
  // Uses `memory`, which the caller has allocated and will free.
  Buffer(const Kernels& kernels, CUdeviceptr memory, std::size_t bytes, std::uint64_t seed);

  std::size_t bytes() const { return words_ * 8; }
  CUdeviceptr memory() const { return memory_; }
  void fill(CUstream stream);
  void step(std::uint64_t iteration, CUstream stream);
  // Compares the memory with the expected result of the iterations 0 to `steps` - 1: every word on the host,
  // and the checksum that a kernel computes. Prints the first wrong word and the number of wrong words to
  // stderr.
  bool verify(std::uint64_t steps, CUstream stream) const;
  void free();

 private:
  const Kernels* kernels_;
  CUdeviceptr memory_ = 0;
  std::uint64_t words_ = 0;
  std::uint64_t seed_ = 0;
};

// Runs `steps` kernels on a freshly filled `buffer` and verifies every byte. Pauses after each kernel, so
// that other tenants can use the GPU.
void exercise(Buffer& buffer, std::uint64_t steps);
// Allocates a buffer, runs `steps` kernels on it and verifies every byte. Needs a current context.
void exercise(std::size_t bytes, std::uint64_t seed, std::uint64_t steps);

// The exit status of a child that has ended, or 128 and the number of the signal that killed it.
int status_of(pid_t child);
// Fails unless `status` is 0.
void expect(const std::string& what, int status);

// Parses "512MiB", or "75%" as a part of `whole`, into bytes. Throws std::invalid_argument.
std::size_t parse_size(const std::string& text, std::size_t whole);

}  // namespace sharedgpu::programs
