// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/host_system.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "protocol/own_thread.h"

namespace sharedgpu {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = 2u << 20;
// Touching this much memory takes about as long as starting a thread.
constexpr std::size_t kMinPart = 8u << 20;

struct Part {
  std::byte* data;
  std::size_t size;
};

void* touch(void* argument) {
  const Part& part = *static_cast<Part*>(argument);
  volatile std::byte* const data = part.data;
  for (std::size_t offset = 0; offset < part.size; offset += kPage) data[offset] = std::byte{0};
  return nullptr;
}

std::size_t processors() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return 1;
  return static_cast<std::size_t>(std::max(CPU_COUNT(&mask), 1));
}

// Touches all pages, in parts, with `most` threads at most. If no thread can be started for a part, the
// calling thread touches this part itself.
void touch_in_parallel(std::byte* data, std::size_t size, unsigned most) {
  constexpr std::size_t kMaxThreads = LinuxHost::kMostThreads;
  const std::size_t count =
      std::clamp<std::size_t>(size / kMinPart, 1, std::min({processors(), kMaxThreads, std::size_t{most}}));
  const std::size_t share = (size / count + kHugePage - 1) / kHugePage * kHugePage;
  std::array<Part, kMaxThreads> parts{};
  std::array<pthread_t, kMaxThreads> threads{};
  std::array<bool, kMaxThreads> started{};

  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = std::min(i * share, size);
    parts[i] = {data + begin, i + 1 == count ? size - begin : std::min(share, size - begin)};
    started[i] = i + 1 < count && start_own_thread(&threads[i], touch, &parts[i]) == 0;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!started[i]) touch(&parts[i]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (started[i]) pthread_join(threads[i], nullptr);
  }
}

// Asks the Linux kernel to take the memory from this NUMA node. If the kernel or a container refuses, the
// memory comes from any node.
void prefer_node(std::byte* data, std::size_t size, unsigned node) {
  constexpr unsigned kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, 1024 / kBits> nodes{};
  if (node >= nodes.size() * kBits) return;
  nodes[node / kBits] = 1ul << node % kBits;
  syscall(SYS_mbind, data, size, MPOL_PREFERRED, nodes.data(), nodes.size() * kBits + 1, 0);
}

}  // namespace

std::byte* LinuxHost::map(Bytes size, unsigned threads) {
  // Maps one huge page more than needed, and keeps only the part that is aligned to huge pages.
  const std::size_t whole = size.count + kHugePage;
  void* const mapped = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(mapped);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(begin) % kHugePage;
  std::byte* const data = begin + before;
  if (before != 0) munmap(begin, before);
  munmap(data + size.count, whole - before - size.count);

  madvise(data, size.count, MADV_HUGEPAGE);
  madvise(data, size.count, MADV_DONTFORK);
  if (node_) prefer_node(data, size.count, *node_);
  touch_in_parallel(data, size.count, threads);
  return data;
}

void LinuxHost::unmap(std::byte* data, Bytes size) { munmap(data, size.count); }

bool LinuxHost::start(Thread& thread, void* (*work)(void*), void* argument) {
  thread.running = start_own_thread(&thread.id, work, argument) == 0;
  return thread.running;
}

Nanoseconds LinuxHost::now() const {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::chrono::seconds(time.tv_sec) + Nanoseconds(time.tv_nsec);
}

void LinuxHost::join(Thread& thread) {
  if (thread.running) pthread_join(thread.id, nullptr);
  thread.running = false;
}

}  // namespace sharedgpu
