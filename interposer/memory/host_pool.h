// SPDX-License-Identifier: Apache-2.0
// Pinned host memory for what is evicted: slabs of 64 granules, kept and used again.
//
// Pinning takes longer than copying, so a slab outlives its contents; trim() gives back what is too much.
// Room is handed out in granules, wherever they lie: a handle's contents may be in several pieces, and
// nothing is lost to fragmentation.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "interposer/memory/device.h"
#include "interposer/memory/host_budget.h"

namespace sharedgpu {

struct HostPiece {
  std::byte* data = nullptr;
  Bytes size;
};

// Room for one handle's contents; the pieces in order.
using HostRoom = std::vector<HostPiece>;

class HostPool {
 public:
  static constexpr unsigned kGranulesPerSlab = 64;

  // A slab has 64 granules, or less where the budget has no room for as much.
  HostPool(Device& device, const HostBudget& budget, Bytes granule);
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // Room for `size` bytes, a multiple of the granule. nullopt: the budget, the kernel or the driver has none.
  // One thread at a time, which has entered the device.
  std::optional<HostRoom> take(Bytes size);
  // Takes room back. Any thread.
  void give(const HostRoom& room);
  // Gives slabs back that are wholly free, as long as at least `keep` is held. The thread has entered the
  // device.
  void trim(Bytes keep);

  Bytes held() const { return {held_.load(std::memory_order_relaxed)}; }
  // The part of it that holds contents.
  Bytes used() const { return {used_.load(std::memory_order_relaxed)}; }

 private:
  struct Slab {
    unsigned granules = 0;
    std::uint64_t free = 0;  // one bit a granule
  };

  static constexpr std::uint64_t all_free(unsigned granules) {
    return granules == kGranulesPerSlab ? ~0ull : (1ull << granules) - 1;
  }
  Bytes size_of(const Slab& slab) const { return {slab.granules * granule_.count}; }
  bool grow(Bytes missing);

  Device& device_;
  const HostBudget& budget_;
  const Bytes granule_;
  std::atomic<std::uint64_t> held_{0};
  std::atomic<std::uint64_t> used_{0};

  std::mutex mutex_;  // guards what follows
  std::map<std::byte*, Slab> slabs_;
  std::set<std::byte*> open_;  // the slabs with a free granule
};

}  // namespace sharedgpu
