// SPDX-License-Identifier: Apache-2.0
// Pinned host memory for evicted contents. The pool consists of slabs, and keeps them for reuse. A slab has
// up to 64 granules. A granule is the smallest amount that the pool hands out.
//
// Pinning takes longer than copying, so the pool grows before memory is needed, and keeps unused slabs. The
// pool grows and shrinks in threads of its own, which exist only while there is such work. It grows slowly
// before an eviction, and as fast as possible during an eviction. An eviction waits only for the memory that
// it needs next. If no thread can be started, the evicting thread grows the pool itself. Fast growth uses two
// threads: one thread touches the pages of the next slab while the other thread pins the previous slab.
//
// The granules that the pool hands out together need not be contiguous. So a handle's contents may lie in
// several pieces, and no memory is lost to fragmentation.
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

// Host memory for the contents of one handle. The order of the pieces is the order of the contents.
using HostRoom = std::vector<HostPiece>;

class HostPool {
 public:
  static constexpr unsigned kGranulesPerSlab = 64;

  // The device, budget and system must outlive the pool.
  HostPool(Device& device, const HostBudget& budget, HostSystem& system, Bytes granule);
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // Allocates `size` bytes, a multiple of the granule, from the pool. Returns nullopt if the pool is too
  // small, and bound(), bar(), the budget, the Linux kernel or the driver prevents its growth. Only one
  // thread at a time may call take().
  std::optional<HostRoom> take(Bytes size);
  // Gives memory from take() back to the pool. Thread-safe.
  void give(const HostRoom& room);

  // Prepares for evictions that need `goal` bytes at once. While the job has memory to spare, the pool grows
  // to this size, and does not shrink below it. Up to `sharers` sessions of the job, this one included, may
  // grow their pools at the same time. Thread-safe; does not wait.
  void prepare(Bytes goal, unsigned sharers);
  // Returns true if prepare() was last called with a size other than zero. Thread-safe.
  bool expected() const {
    const std::lock_guard lock(mutex_);
    return prepared_ != Bytes{};
  }
  // Makes the pool grow to `goal` bytes as fast as possible, for an eviction that has begun. Called with zero
  // when the eviction has ended.
  void hurry(Bytes goal);
  // Limits the pool's size from now on, but releases nothing. Returns the bytes that the pool holds or is
  // adding. From now on the pool does not grow beyond the larger of the limit and the returned amount.
  // Thread-safe.
  Bytes bound(Bytes most);
  // Samples how fast the job itself allocates memory. The pool does not allocate the memory that the job will
  // need within the next second. Called often. Thread-safe.
  void watch();
  // Called when the job itself needs the memory that the pool holds. The pool then does not grow until a
  // minute has passed in which HostBudget::used_up() was false. Thread-safe.
  void bar();
  // Releases slabs that are wholly free, as long as the pool then still holds at least `keep` bytes and at
  // least the size given to prepare().
  void trim(Bytes keep);
  // Maintenance, called about once a second: releases memory that no eviction is expected to need, or all
  // free memory if the job runs short of memory. Also ends the pauses in the pool's growth, after about a
  // minute. A thread of the pool does the work: releasing memory waits for the GPU, and the GPU may be
  // waiting for the caller. If `works` is true, the program works on the GPU. One call then releases at most
  // kGranulesPerSlab granules, because each release stalls the GPU (20 ms per GiB on an H200, bench_pin). If
  // the job runs short of memory, `works` has no effect.
  void tend(bool works);

  Bytes held() const { return {held_.load(std::memory_order_relaxed)}; }
  // The bytes of held() that take() has handed out.
  Bytes used() const { return {used_.load(std::memory_order_relaxed)}; }

 private:
  struct Slab {
    unsigned granules = 0;
    std::uint64_t free = 0;  // one bit for each granule: 1 if the granule is free
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

  // Locking order: start_mutex_, touch_mutex_, pin_mutex_, mutex_. mutex_ is never held across a call of the
  // driver or the system.
  std::mutex start_mutex_;         // held by the thread that starts the workers
  std::array<Worker, 2> workers_;  // mutex_ guards `busy`, start_mutex_ guards `thread`
  std::mutex touch_mutex_;         // held by the thread that maps a slab and touches its pages
  std::mutex pin_mutex_;           // held by the thread that pins a slab
  mutable std::mutex mutex_;       // guards the members below
  std::condition_variable changed_;
  Growth growth_;  // estimates how fast the job itself allocates memory
  std::map<std::byte*, Slab> slabs_;
  std::set<std::byte*> open_;  // the slabs that have a free granule
  Bytes most_{~0ull};          // the limit set by bound()
  Bytes growing_;              // size of the slabs that are being created
  Bytes shrinking_;            // size of the slabs that are being released
  Bytes prepared_;             // the goal of prepare()
  Bytes hurried_;              // the goal of hurry()
  Bytes needed_;               // host memory that the last turn needed; set by trim()
  std::optional<Bytes> keep_;  // if set, a worker releases free slabs as long as this many bytes remain
  unsigned sharers_ = 1;
  unsigned resting_ = 0;   // number of further calls of tend() until the pool may again grow before an
                           // eviction
  unsigned barred_ = 0;    // number of further calls of tend() until the pool may grow at all
  bool touching_ = false;  // true while a thread touches the pages of a slab
};

}  // namespace sharedgpu
