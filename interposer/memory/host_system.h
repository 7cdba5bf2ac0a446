// SPDX-License-Identifier: Apache-2.0
// What the host pool asks of the operating system, and nothing more: tests put failures there.
//
// Safe for any thread.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <optional>

#include "protocol/units.h"

namespace sharedgpu {

class HostSystem {
 public:
  // A thread that may have been started.
  struct Thread {
    pthread_t id{};
    bool running = false;  // until it is joined
  };

  virtual ~HostSystem() = default;

  // Maps `size` bytes (a multiple of the page size) and touches every page, by up to so many threads. Null
  // where the kernel has no room. A child of fork() does not see them: a copy on write under the GPU's hands
  // would lose data.
  virtual std::byte* map(Bytes size, unsigned threads) = 0;
  virtual void unmap(std::byte* data, Bytes size) = 0;

  // Runs `work` in a thread of its own. False: there is none to be had.
  virtual bool start(Thread& thread, void* (*work)(void*), void* argument) = 0;
  virtual void join(Thread& thread) = 0;

  // So many threads may touch memory ahead of need without being in the program's way.
  virtual unsigned spare_threads() const { return 1; }

  virtual Nanoseconds now() const = 0;
};

// Anonymous memory in huge pages where the kernel has them, touched by several threads at once: seven times
// faster to pin than what the driver allocates itself.
class LinuxHost : public HostSystem {
 public:
  // More than that are no faster.
  static constexpr unsigned kMostThreads = 8;

  // `node`: the memory is to come from this NUMA node while it has some.
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
