// SPDX-License-Identifier: Apache-2.0
// Eviction and restore: the copies of several handles are in flight at once and retired in order. Runs on the
// turn thread.
#include <algorithm>
#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "interposer/memory/swap_memory.h"

namespace sharedgpu {
namespace {

// The handles being moved, one per lane, first in first out.
class Pipeline {
 public:
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == Lane::kCount; }
  Lane next_lane() const { return {(first_ + count_) % Lane::kCount}; }
  void push(Handle& handle) {
    slots_[next_lane().index] = &handle;
    ++count_;
  }
  Lane first_lane() const { return {first_}; }
  Handle& pop() {
    Handle& handle = *slots_[first_];
    first_ = (first_ + 1) % Lane::kCount;
    --count_;
    return handle;
  }

 private:
  std::array<Handle*, Lane::kCount> slots_{};
  unsigned first_ = 0;
  unsigned count_ = 0;
};

}  // namespace

bool SwapMemory::evict() {
  const DeviceScope scope(device_);
  const bool ready = scope.ok() && mover_->settle();
  if (ready) free_deferred(Gpu::drained);
  mover_->take_left();
  Pipeline pipeline;
  std::deque<Leaver> next;
  Bytes leaving;
  Bytes unreported;
  bool stuck = !ready;
  bool no_room = false;
  MutexLock lock(mutex_);
  while (true) {
    while (!stuck && !pipeline.full() && minus(residency_.resident(), leaving) > residency_.allowed()) {
      if (next.empty()) {
        stuck = !choose(minus(minus(residency_.resident(), leaving), residency_.allowed()), next);
        if (next.empty()) break;
        continue;  // less may have to be evicted now
      }
      const Leaver leaver = next.front();
      next.pop_front();
      const Mover::Begun begun = begin_out(leaver, pipeline.next_lane());
      if (begun == Mover::Begun::yes) {
        pipeline.push(*leaver.handle);
        leaving += leaver.handle->size;
      } else {
        no_room |= begun == Mover::Begun::no_room;
        unclaim(*leaver.handle);
        stuck = true;
      }
    }
    if (!pipeline.empty()) {
      const Lane lane = pipeline.first_lane();
      Handle& handle = pipeline.pop();
      lock.unlock();
      stuck |= !mover_->end_out(handle, lane);
      lock.lock();
      leaving -= handle.size;
      unreported += handle.size;
      unclaim(handle);
      if (unreported >= options_.report_every) {
        unreported = {};
        lock.unlock();
        books_.report(false);
        lock.lock();
      }
    } else if (stuck || !residency_.exceeds() || !residency_.any_busy()) {
      break;
    } else {
      settled_.wait(mutex_);  // other threads allocate or free the rest, and never wait for us
    }
  }
  for (const Leaver& leaver : next) unclaim(*leaver.handle);
  const bool done = !residency_.exceeds();
  lock.unlock();
  if (pool_) pool_->hurry({});
  last_eviction_ = mover_->take_left();
  last_eviction_.no_room = no_room;
  host_peak_ = std::max(host_peak_, mover_->host_used());
  // The GPU memory of a process that ends is free in a moment, so the arbiter need not plan around it.
  books_.report(!done && !device_.ending());
  return done;
}

// Acquires the handles to evict next, and fingerprints them together, while the lanes have enough to copy.
// Returns false if nothing may be evicted now.
bool SwapMemory::choose(Bytes excess, std::deque<Leaver>& chosen) {
  std::vector<Leaver> leavers;
  Bytes together;
  for (Handle* handle = residency_.first_to_leave(); handle != nullptr && together < excess;
       handle = residency_.first_to_leave()) {
    if (!leavers.empty() && together + handle->size > Device::kMostLooked) break;
    residency_.claim(*handle);
    together += handle->size;
    leavers.push_back({handle, {}});
  }
  if (leavers.empty()) return true;
  const Bytes most = residency_.away();  // bytes on the host at the end
  mutex_.unlock();
  const bool looked = mover_->look(leavers);
  Bytes goal = mover_->host_used() + mover_->host_kept();
  for (const Leaver& leaver : leavers)
    if (mover_->needs_room(leaver)) goal += leaver.handle->size;
  if (looked && pool_) pool_->hurry(std::min(goal, most));
  mutex_.lock();
  chosen.assign(leavers.begin(), leavers.end());
  return looked;
}

// Clean copies occupy room that the pool would keep anyway. They are dropped before the pool holds more than
// the bytes that will be on the host, and before the handle has to stay for lack of room.
Mover::Begun SwapMemory::begin_out(const Leaver& leaver, Lane lane) {
  while (!mover_->has_room(*leaver.handle) && mover_->host_held() >= residency_.away() && give_up_copy()) {
  }
  for (;;) {
    mutex_.unlock();
    const Mover::Begun begun = mover_->begin_out(leaver, lane);
    mutex_.lock();
    if (begun != Mover::Begun::no_room || !give_up_copy()) return begun;
  }
}

// Drops the least useful clean copy. Returns false if there is none.
bool SwapMemory::give_up_copy() {
  Handle* const handle = residency_.last_copy();
  if (handle == nullptr) return false;
  drop_copy(*handle);
  return true;
}

void SwapMemory::give_up_copies() {
  const MutexLock lock(mutex_);
  while (give_up_copy()) {
  }
}

// Drops the clean copy of a handle that is not busy.
void SwapMemory::drop_copy(Handle& handle) {
  residency_.change(handle, [&] { mover_->forget(handle); });
}

bool SwapMemory::restore() {
  if (bring_back()) return true;
  {
    const MutexLock lock(mutex_);
    if (residency_.resident() >= residency_.allowed()) return false;  // more can become resident
  }
  if (!device_.lost()) return false;
  {
    const MutexLock lock(mutex_);
    lost_ = true;
  }
  books_.report(false);
  return true;
}

bool SwapMemory::bring_back() {
  const DeviceScope scope(device_);
  const bool ready = scope.ok() && mover_->settle();
  if (ready) free_deferred(Gpu::drained);
  Pipeline pipeline;
  Bytes unreported;
  bool failed = !ready;
  MutexLock lock(mutex_);
  while (true) {
    while (!failed && !pipeline.full()) {
      Handle* const handle = residency_.first_to_return();
      if (handle == nullptr) break;
      residency_.claim(*handle);
      residency_.count(*handle);
      lock.unlock();
      const CUresult begun = mover_->begin_in(*handle, pipeline.next_lane());
      lock.lock();
      if (begun == CUDA_SUCCESS) {
        pipeline.push(*handle);
      } else {
        unclaim(*handle);
        failed = true;
      }
    }
    if (pipeline.empty()) {
      if (failed || !residency_.any_busy() || !residency_.all_usable()) break;
      // Other threads are allocating or freeing the rest, and never wait for us. They may have read the
      // resident limit before it was raised, and so leave it to us to back their memory.
      settled_.wait(mutex_);
      continue;
    }
    const Lane lane = pipeline.first_lane();
    Handle& handle = pipeline.pop();
    lock.unlock();
    failed |= !mover_->end_in(handle, lane);
    lock.lock();
    unreported += handle.size;
    unclaim(handle);
    if (unreported >= options_.report_every) {
      unreported = {};
      lock.unlock();
      books_.report(false);
      lock.lock();
    }
  }
  const bool done = lost_ || residency_.all_usable();
  // The next turn most likely needs as much host room as this one did, and pinning costs more than copying.
  // The pool is trimmed only once: at a further Restore, work may already be running, and releasing memory
  // waits for it.
  const bool trim = done && ready && host_peak_ != Bytes{};
  while (trim && mover_->host_kept() > host_peak_ && give_up_copy()) {
  }
  lock.unlock();
  const Bytes peak = trim ? std::exchange(host_peak_, {}) : Bytes{};
  if (trim && pool_) pool_->trim(peak);
  if (unreported.count != 0) books_.report(false);
  return done;
}

void SwapMemory::tend() {
  if (pool_) {
    // Clean copies are worth their room only while evictions are expected and the job can spare it.
    if (mover_->host_kept() != Bytes{} && (!pool_->expected() || budget_.tight({}))) give_up_copies();
    pool_->tend(!books_.idle());
  }
  read_host_limit();
}

// Host memory that holds evicted contents cannot be released before they are restored. The pool is blocked
// from growing before that, since the next eviction would otherwise take the memory that the job is about to
// use.
bool SwapMemory::watch_host() {
  if (pool_ == nullptr || (pool_->held() == Bytes{} && !pool_->expected())) return false;
  pool_->watch();
  if (!budget_.tight({})) return false;
  give_up_copies();
  pool_->tend(false);
  if (!budget_.used_up()) return false;
  pool_->bar();
  return mover_->host_used() != Bytes{};
}

}  // namespace sharedgpu
