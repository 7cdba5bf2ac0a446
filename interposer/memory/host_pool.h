// SPDX-License-Identifier: Apache-2.0
// Pinned host memory for evicted contents: slabs of up to 64 granules, kept for reuse.
//
// Pinning takes longer than copying, so the pool grows before its room is needed, and a slab outlives its
// contents. It grows in threads of its own, which exist only while it grows: slowly ahead of need, as fast as
// possible during an eviction, which waits only for the room that it needs next. If no thread can be started,
// the eviction grows the pool itself. Fast growth uses two threads: one touches the pages of the next slab
// while the other pins the last one.
//
// Room is handed out in granules that need not be contiguous: a handle's contents may be in several pieces,
// and fragmentation wastes no room.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "interposer/memory/device.h"
#include "interposer/memory/growth.h"
#include "interposer/memory/host_budget.h"
#include "interposer/memory/host_system.h"

namespace sharedgpu {

struct HostPiece {
  std::byte* data = nullptr;
  Bytes size;
};

// Room for one handle's contents: pieces in order.
using HostRoom = std::vector<HostPiece>;

class HostPool {
 public:
  static constexpr unsigned kGranulesPerSlab = 64;

  // The device, budget and system outlive the pool.
  HostPool(Device& device, const HostBudget& budget, HostSystem& system, Bytes granule);
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // Takes room for `size` bytes, a multiple of the granule. Returns nullopt if the budget, the kernel or the
  // driver has no room. One thread at a time.
  std::optional<HostRoom> take(Bytes size);
  // Returns room to the pool. Thread-safe.
  void give(const HostRoom& room);

  // Prepares for evictions that need `goal` bytes at once: grows to that size while the job has memory to
  // spare, and keeps it. `sharers` sessions of the job, this one included, may grow their pools at the same
  // time. Thread-safe; does not wait.
  void prepare(Bytes goal, unsigned sharers);
  // Returns true if the prepared size is not zero. Thread-safe.
  bool expected() const {
    const std::lock_guard lock(mutex_);
    return prepared_ != Bytes{};
  }
  // Called when an eviction begins that will need all of `goal`, and with zero when it has ended.
  void hurry(Bytes goal);
  // Limits the pool's size from now on, but releases nothing. Returns the amount that the pool holds or is
  // just taking. Earlier requests never make the pool hold more than the limit or this amount. Thread-safe.
  Bytes bound(Bytes most);
  // Samples how fast the job itself takes memory. The pool leaves the job the memory that it will take within
  // a second. Called often. Thread-safe.
  void watch();
  // Called when the job needs the memory that the pool holds. The pool then does not grow for some time.
  // Thread-safe.
  void bar();
  // Releases slabs that are wholly free, as long as the pool still holds at least `keep` and the size of
  // prepare().
  void trim(Bytes keep);
  // Maintenance, about once a second: releases memory that is not expected to be needed, and all free memory
  // if the job runs short; resumes growth that was blocked. A pool thread does the work, since releasing
  // memory waits for the GPU, which may be waiting for the caller. While the program `works` on the GPU, one
  // slab is released at a time: each release lets the GPU run dry (20 ms per GiB on an H200, bench_pin).
  void tend(bool works);

  Bytes held() const { return {held_.load(std::memory_order_relaxed)}; }
  // The part of held() that holds contents.
  Bytes used() const { return {used_.load(std::memory_order_relaxed)}; }

 private:
  struct Slab {
    unsigned granules = 0;
    std::uint64_t free = 0;  // one bit per granule
  };

  static constexpr std::uint64_t all_free(unsigned granules) {
    return granules == kGranulesPerSlab ? ~0ull : (1ull << granules) - 1;
  }
  Bytes size_of(const Slab& slab) const { return {slab.granules * granule_.count}; }
  enum class Pace { ahead, hurried };

  struct Worker {
    HostPool* pool = nullptr;
    HostSystem::Thread thread;
    bool busy = false;
  };

  static void* work(void* worker);
  void work(Worker& worker);
  Bytes coming() const { return held() + growing_; }
  bool hurries() const { return coming() < hurried_; }
  bool lacks() const { return hurries() || (resting_ == 0 && coming() < prepared_); }
  bool working() const;
  bool exceeds(Bytes keep) const;
  Bytes claim_slab(Bytes goal, Pace pace);
  Bytes room() const;
  void start();
  bool grow(Bytes goal, Pace pace);
  Bytes next_slab(Bytes missing, Pace pace);
  void shrink(Bytes keep);

  Device& device_;
  const HostBudget& budget_;
  HostSystem& system_;
  const Bytes granule_;
  std::atomic<std::uint64_t> held_{0};
  std::atomic<std::uint64_t> used_{0};

  // The mutexes are taken in this order. The last one is never held across a call of the driver or the
  // system.
  std::mutex start_mutex_;         // held by the thread that starts the workers
  std::array<Worker, 2> workers_;  // busy: see mutex_
  std::mutex touch_mutex_;         // held by the thread that begins a slab and touches its pages
  std::mutex pin_mutex_;           // held by the thread that pins a slab
  mutable std::mutex mutex_;       // guards the members below
  std::condition_variable changed_;
  Growth growth_;  // the speed at which the job itself takes memory
  std::map<std::byte*, Slab> slabs_;
  std::set<std::byte*> open_;  // the slabs with a free granule
  Bytes most_{~0ull};          // the limit of bound()
  Bytes growing_;              // the slabs that are being created
  Bytes shrinking_;            // the slab that is being released
  Bytes prepared_;             // the goal of prepare()
  Bytes hurried_;              // the goal of hurry()
  Bytes needed_;               // host memory that the last turn needed, from trim()
  std::optional<Bytes> keep_;  // workers release slabs until the pool holds at most this
  unsigned sharers_ = 1;
  unsigned resting_ = 0;   // calls of tend() left until the pool may grow ahead of need again
  unsigned barred_ = 0;    // calls of tend() left until the pool may grow at all
  bool touching_ = false;  // a slab's pages are being touched
};

}  // namespace sharedgpu
