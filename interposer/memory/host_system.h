// SPDX-License-Identifier: Apache-2.0
// The operating system functions that the host pool needs. Tests replace this class to inject failures.
//
// Thread-safe.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <optional>

#include "protocol/units.h"

namespace sharedgpu {

class HostSystem {
 public:
  // A thread, which runs only if start() has succeeded.
  struct Thread {
    pthread_t id{};
    bool running = false;  // true between start() and join()
  };

  virtual ~HostSystem() = default;

  // Maps `size` bytes (a multiple of the page size) and touches every page, with up to `threads` threads.
  // Returns null if the Linux kernel refuses the memory. A child of fork() does not inherit the mapping.
  // Otherwise copy-on-write could replace pages that the GPU accesses, and data would be lost.
  virtual std::byte* map(Bytes size, unsigned threads) = 0;
  virtual void unmap(std::byte* data, Bytes size) = 0;

  // Runs `work` in a new thread. Returns false if no thread can be created.
  virtual bool start(Thread& thread, void* (*work)(void*), void* argument) = 0;
  virtual void join(Thread& thread) = 0;

  // The number of threads that may touch memory before an eviction without slowing the program down.
  virtual unsigned spare_threads() const { return 1; }

  virtual Nanoseconds now() const = 0;
};

// Maps anonymous memory, in huge pages if the Linux kernel has free ones, and touches the pages with several
// threads at once. Pinning this memory takes a seventh of the time that the driver takes to allocate pinned
// memory itself.
class LinuxHost : public HostSystem {
 public:
  // The most threads that touch pages at the same time. More threads would not be faster.
  static constexpr unsigned kMostThreads = 8;

  // `node`: the NUMA node to prefer for the memory.
  explicit LinuxHost(std::optional<unsigned> node = {}) : node_(node) {}

  std::byte* map(Bytes size, unsigned threads) override;
  void unmap(std::byte* data, Bytes size) override;
  bool start(Thread& thread, void* (*work)(void*), void* argument) override;
  void join(Thread& thread) override;
  Nanoseconds now() const override;

 private:
  const std::optional<unsigned> node_;
};

}  // namespace sharedgpu
