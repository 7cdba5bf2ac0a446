// SPDX-License-Identifier: Apache-2.0
// An external timeline semaphore. Its value is the first eight bytes of a file. Another process that uses the
// semaphore maps the same file.
#pragma once

#include <atomic>
#include <cstdint>

namespace sharedgpu::simgpu {

class Semaphore {
 public:
  // Throws CUDA_ERROR_INVALID_HANDLE if the file is shorter than eight bytes.
  explicit Semaphore(int file);
  ~Semaphore();
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;

  void signal(std::uint64_t value) { std::atomic_ref(*value_).store(value); }
  bool has_reached(std::uint64_t value) const { return std::atomic_ref(*value_).load() >= value; }

 private:
  std::uint64_t* value_;
};

}  // namespace sharedgpu::simgpu
