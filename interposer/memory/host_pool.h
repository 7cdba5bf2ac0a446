// SPDX-License-Identifier: Apache-2.0
// Pinned host memory for what is evicted: slabs of up to 64 granules, kept and used again.
//
// Pinning takes longer than copying, so the pool grows before its room is needed, and a slab outlives its
// contents. It grows in threads of its own, which exist only while there is something to grow: slowly ahead
// of need, as fast as it can beside an eviction, which waits only for room that it needs next. Without such a
// thread the eviction grows the pool itself. Where it is to be fast there are two, and one touches the pages
// of the next slab while the other pins the last one.
//
// Room is handed out in granules, wherever they lie: a handle's contents may be in several pieces, and
// nothing is lost to fragmentation.
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

// Room for one handle's contents; the pieces in order.
using HostRoom = std::vector<HostPiece>;

class HostPool {
 public:
  static constexpr unsigned kGranulesPerSlab = 64;

  // All three outlive it.
  HostPool(Device& device, const HostBudget& budget, HostSystem& system, Bytes granule);
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // Room for `size` bytes, a multiple of the granule. nullopt: the budget, the kernel or the driver has none.
  // One thread at a time.
  std::optional<HostRoom> take(Bytes size);
  // Takes room back. Any thread.
  void give(const HostRoom& room);

  // So much may be needed at once: grows to that while the job has memory to spare, and keeps it. So many
  // sessions of the job, this one included, may grow their pools at the same time. Any thread; waits for
  // nothing.
  void prepare(Bytes goal, unsigned sharers);
  // Whether that is anything. Any thread.
  bool expected() const {
    const std::lock_guard lock(mutex_);
    return prepared_ != Bytes{};
  }
  // An eviction has begun that will take all of `goal`. Zero: it has ended.
  void hurry(Bytes goal);
  // The most that it may hold from now on, whatever it is asked for; what it holds already stays. Returns
  // what it holds or is just taking: with what was asked for before, it never holds more. Any thread.
  Bytes bound(Bytes most);
  // Looks how fast the job itself takes memory: what it will have taken within a second is left to it. Often;
  // from any thread.
  void watch();
  // The job needs what the pool holds: takes nothing more until that has passed for a while. Any thread.
  void bar();
  // Gives slabs back that are wholly free, as long as at least `keep` is held and what prepare() said.
  void trim(Bytes keep);
  // Every second or so: gives back what nobody expects to need any more, and all that is free where the job
  // runs short of memory; goes on growing where something was in the way. A thread of the pool's does it: to
  // give memory back waits for the GPU, which may be waiting for the caller. While the program `works` there
  // it is one slab at a time: for each the GPU runs dry (20 ms per GiB on an H200, bench_pin).
  void tend(bool works);

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

  // Taken in this order; the last alone is never held across a call of the driver or the system.
  std::mutex start_mutex_;         // of who starts the workers
  std::array<Worker, 2> workers_;  // busy: see mutex_
  std::mutex touch_mutex_;         // of who claims a slab and touches its pages: one at a time
  std::mutex pin_mutex_;           // of who pins one
  mutable std::mutex mutex_;       // guards what follows
  std::condition_variable changed_;
  Growth growth_;  // of the job
  std::map<std::byte*, Slab> slabs_;
  std::set<std::byte*> open_;  // the slabs with a free granule
  Bytes most_{~0ull};          // what bound() said
  Bytes growing_;              // the slabs that are being made
  Bytes shrinking_;            // the slab that is being given back
  Bytes prepared_;             // what prepare() said
  Bytes hurried_;              // what hurry() said
  Bytes needed_;               // what the last turn needed, as trim() was told
  std::optional<Bytes> keep_;  // a worker is to give back what is more than that
  unsigned sharers_ = 1;
  unsigned resting_ = 0;   // so many calls of tend() pass before the pool grows ahead of need again
  unsigned barred_ = 0;    // so many pass before it grows at all
  bool touching_ = false;  // a slab's pages are being touched
};

}  // namespace sharedgpu
