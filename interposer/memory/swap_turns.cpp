// SPDX-License-Identifier: Apache-2.0
// Eviction and restore: several handles' copies under way at once, retired in order. On the turn thread.
#include <algorithm>
#include <array>
#include <utility>

#include "interposer/memory/swap_memory.h"

namespace sharedgpu {
namespace {

// The handles on their way, one a lane, first in first out.
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
  Pipeline pipeline;
  Bytes leaving;
  Bytes unreported;
  bool stuck = !ready;
  if (ready) mover_->hurry_host(host_goal());
  std::unique_lock lock(mutex_);
  while (true) {
    while (!stuck && !pipeline.full() && minus(resident_, leaving) > allowed_) {
      Handle* const handle = order_.first_to_leave();
      if (handle == nullptr) break;
      claim(*handle);
      lock.unlock();
      const bool begun = mover_->begin_out(*handle, pipeline.next_lane());
      lock.lock();
      if (begun) {
        pipeline.push(*handle);
        leaving += handle->size;
      } else {
        unclaim(*handle);
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
    } else if (stuck || resident_ <= allowed_ || busy_ == 0) {
      break;
    } else {
      settled_.wait(lock);  // what is left is being made or freed by other threads, which never wait for us
    }
  }
  const bool done = resident_ <= allowed_;
  lock.unlock();
  mover_->hurry_host({});
  host_peak_ = std::max(host_peak_, mover_->host_used());
  books_.report(!done);
  return done;
}

// What will be on the host when all that must leave has left: no more than what is there now and what leaves,
// and no more than what then is not on the GPU.
Bytes SwapMemory::host_goal() const {
  const std::lock_guard lock(mutex_);
  return std::min(mover_->host_used() + minus(resident_, allowed_), minus(swappable_, allowed_));
}

bool SwapMemory::restore() {
  if (bring_back()) return true;
  {
    const std::lock_guard lock(mutex_);
    if (resident_ >= allowed_) return false;  // there is more to come
  }
  if (!device_.lost()) return false;
  {
    const std::lock_guard lock(mutex_);
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
  std::unique_lock lock(mutex_);
  while (true) {
    while (!failed && !pipeline.full()) {
      Handle* const handle = order_.first_to_return(minus(allowed_, resident_));
      if (handle == nullptr) break;
      claim(*handle);
      count_resident(*handle);
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
    if (pipeline.empty()) break;
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
  const bool done = lost_ || order_.all_usable();
  lock.unlock();
  // The next turn most likely needs as much host room as this one did: pinning costs more than copying. Once
  // a turn: several Restores may say the same.
  if (done && ready && host_peak_ != Bytes{}) mover_->trim_host(std::exchange(host_peak_, {}));
  if (unreported.count != 0) books_.report(false);
  return done;
}

void SwapMemory::tend() {
  if (books_.idle()) free_deferred(Gpu::drained);
  mover_->tend_host();
  read_host_limit();
}

}  // namespace sharedgpu
