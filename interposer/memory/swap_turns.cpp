// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/swap_turns.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace sharedgpu {
namespace {

// The handles that are being evicted or restored: at most one on each lane (a queue of copies, device.h). The
// first to begin is the first to end.
class Pipeline {
 public:
  bool empty() const { return handles_.empty(); }
  bool full() const { return handles_.size() == Lane::kCount; }
  Lane next_lane() const { return {begun_ % Lane::kCount}; }
  void push(Handle& handle) {
    handles_.push_back(&handle);
    ++begun_;
  }
  // Removes the handle that was pushed first, and returns it with its lane.
  std::pair<Handle&, Lane> pop() {
    const Lane lane{(begun_ - static_cast<unsigned>(handles_.size())) % Lane::kCount};
    Handle& handle = *handles_.front();
    handles_.pop_front();
    return {handle, lane};
  }

 private:
  std::deque<Handle*> handles_;
  unsigned begun_ = 0;
};

}  // namespace

void SwapTurns::set_allowed(Bytes allowed) {
  const MutexLock lock(common_.mutex);
  common_.residency.set_allowed(allowed);
  common_.changed.notify_all();  // if the limit has grown, an evict() in progress may stop earlier
}

Bytes SwapTurns::allowed() const {
  const MutexLock lock(common_.mutex);
  return common_.residency.allowed();
}

bool SwapTurns::evict() {
  const DeviceScope scope(common_.device);
  const bool ready = scope.ok() && common_.mover->settle();
  if (ready) freeing_.free_deferred(SwapFreeing::Gpu::drained);
  common_.mover->take_left();
  Pipeline pipeline;
  std::deque<Leaver> next;
  Bytes leaving;
  Bytes unreported;
  bool stuck = !ready;
  bool no_room = false;
  MutexLock lock(common_.mutex);
  while (true) {
    while (!stuck && !pipeline.full() &&
           minus(common_.residency.resident(), leaving) > common_.residency.allowed()) {
      if (next.empty()) {
        stuck =
            !choose(minus(minus(common_.residency.resident(), leaving), common_.residency.allowed()), next);
        if (next.empty()) break;
        continue;  // checks again: choose() releases the lock, so the limit may have grown, or another
                   // thread may have freed memory
      }
      const Leaver leaver = next.front();
      next.pop_front();
      const Mover::Begun begun = begin_out(leaver, pipeline.next_lane());
      if (begun == Mover::Begun::yes) {
        pipeline.push(*leaver.handle);
        leaving += leaver.handle->size;
      } else {
        no_room |= begun == Mover::Begun::no_room;
        common_.unclaim(*leaver.handle);
        stuck = true;
      }
    }
    if (!pipeline.empty()) {
      const auto [handle, lane] = pipeline.pop();
      lock.unlock();
      stuck |= !common_.mover->end_out(handle, lane);
      lock.lock();
      leaving -= handle.size;
      common_.unclaim(handle);
      note_moved(handle.size, unreported);
    } else if (stuck || !common_.residency.exceeds() || !common_.residency.any_busy()) {
      break;
    } else {
      common_.changed.wait(common_.mutex);  // other threads have claimed the busy handles, and
                                            // they never wait for this thread
    }
  }
  for (const Leaver& leaver : next) common_.unclaim(*leaver.handle);
  const bool done = !common_.residency.exceeds();
  lock.unlock();
  if (common_.pool) common_.pool->hurry({});
  last_eviction_ = common_.mover->take_left();
  last_eviction_.no_room = no_room;
  host_peak_ = std::max(host_peak_, common_.mover->host_used());
  // If the process is ending, its GPU memory will soon be free, so a failed eviction is not reported.
  common_.books.report(!done && !common_.device.ending());
  return done;
}

// Marks the handles to evict next as busy, and computes all their fingerprints at once, while the lanes are
// still copying. Returns false if these handles must not be evicted now.
bool SwapTurns::choose(Bytes excess, std::deque<Leaver>& chosen) {
  std::vector<Leaver> leavers;
  Bytes together;
  for (Handle* handle = common_.residency.first_to_leave(); handle != nullptr && together < excess;
       handle = common_.residency.first_to_leave()) {
    if (!leavers.empty() && together + handle->size > Device::kMostLooked) break;
    common_.residency.claim(*handle);
    together += handle->size;
    leavers.push_back({handle, {}});
  }
  if (leavers.empty()) return true;
  const Bytes most =
      common_.residency.evicted_at_limit();  // bytes that will be on the host when the eviction has ended
  common_.mutex.unlock();
  const bool looked = common_.mover->look(leavers);
  Bytes goal = common_.mover->host_used() + common_.mover->host_kept();
  for (const Leaver& leaver : leavers)
    if (common_.mover->needs_room(leaver)) goal += leaver.handle->size;
  if (looked && common_.pool) common_.pool->hurry(std::min(goal, most));
  common_.mutex.lock();
  chosen.assign(leavers.begin(), leavers.end());
  return looked;
}

// Clean copies may occupy host memory that the pool would keep anyway. They are dropped if the pool would
// otherwise hold more than the bytes that will be on the host. They are also dropped if no host memory is
// left for the handle, after unused blocks of away memory have been released.
Mover::Begun SwapTurns::begin_out(const Leaver& leaver, Lane lane) {
  while (!common_.mover->has_room(*leaver.handle) &&
         common_.mover->host_held() >= common_.residency.evicted_at_limit() && give_up_copy()) {
  }
  for (;;) {
    common_.mutex.unlock();
    Mover::Begun begun = common_.mover->begin_out(leaver, lane);
    if (begun == Mover::Begun::no_room && common_.blocks && common_.blocks->trim({}))
      begun = common_.mover->begin_out(leaver, lane);
    common_.mutex.lock();
    if (begun != Mover::Begun::no_room || !give_up_copy()) return begun;
  }
}

CUresult SwapTurns::evict(Handle& handle) {
  const Lane lane;
  Mover::Begun begun = Mover::Begun::failed;
  {
    const MutexLock lock(common_.mutex);
    begun = begin_out({&handle, {}}, lane);
  }
  if (begun == Mover::Begun::no_room) return CUDA_ERROR_OUT_OF_MEMORY;
  return begun == Mover::Begun::yes && common_.mover->end_out(handle, lane) ? CUDA_SUCCESS
                                                                            : CUDA_ERROR_UNKNOWN;
}

// Drops the least useful clean copy (see Order::last_copy()). Returns false if there is no clean copy.
bool SwapTurns::give_up_copy() {
  Handle* const handle = common_.residency.last_copy();
  if (handle == nullptr) return false;
  common_.residency.change(*handle, [&] { common_.mover->forget(*handle); });
  return true;
}

void SwapTurns::give_up_copies() {
  const MutexLock lock(common_.mutex);
  while (give_up_copy()) {
  }
}

// Counts moved bytes, and reports progress each time SwapOptions::report_every bytes have been moved.
void SwapTurns::note_moved(Bytes size, Bytes& unreported) {
  unreported += size;
  if (unreported < common_.options.report_every) return;
  unreported = {};
  common_.mutex.unlock();
  common_.books.report(false);
  common_.mutex.lock();
}

bool SwapTurns::restore() {
  if (bring_back()) return true;
  {
    const MutexLock lock(common_.mutex);
    if (common_.residency.resident() >= common_.residency.allowed())
      return false;  // a later Restore with a larger limit may succeed
  }
  if (!common_.device.lost()) return false;
  {
    const MutexLock lock(common_.mutex);
    common_.residency.lose();
  }
  common_.books.report(false);
  return true;
}

bool SwapTurns::bring_back() {
  const DeviceScope scope(common_.device);
  const bool ready = scope.ok() && common_.mover->settle();
  if (ready) freeing_.free_deferred(SwapFreeing::Gpu::drained);
  Pipeline pipeline;
  Bytes unreported;
  bool failed = !ready;
  MutexLock lock(common_.mutex);
  while (true) {
    while (!failed && !pipeline.full()) {
      Handle* const handle = common_.residency.first_to_return();
      if (handle == nullptr) break;
      common_.residency.claim(*handle);
      common_.residency.count(*handle);
      lock.unlock();
      const CUresult begun = common_.mover->begin_in(*handle, pipeline.next_lane());
      lock.lock();
      if (begun == CUDA_SUCCESS) {
        pipeline.push(*handle);
      } else {
        common_.unclaim(*handle);
        failed = true;
      }
    }
    if (pipeline.empty()) {
      if (failed || !common_.residency.any_busy() || !common_.residency.all_usable()) break;
      // Other threads have claimed the busy handles, and they never wait for this thread. A thread that
      // allocates may have read the resident limit before the limit was raised, and then does not back its
      // memory. So this thread has to back this memory.
      common_.changed.wait(common_.mutex);
      continue;
    }
    const auto [handle, lane] = pipeline.pop();
    lock.unlock();
    failed |= !common_.mover->end_in(handle, lane);
    lock.lock();
    common_.unclaim(handle);
    note_moved(handle.size, unreported);
  }
  const bool done = common_.residency.lost() || common_.residency.all_usable();
  // Trims the pool to the most host memory that was needed since the last full restore. The next turn most
  // likely needs the same amount again, and pinning takes longer than copying. Trims only when a Restore
  // first completes. At a further Restore, work of the process may be running, and releasing host memory
  // waits for GPU work.
  const bool trim = done && ready && host_peak_ != Bytes{};
  while (trim && common_.mover->host_kept() > host_peak_ && give_up_copy()) {
  }
  lock.unlock();
  const Bytes peak = trim ? std::exchange(host_peak_, {}) : Bytes{};
  if (trim && common_.pool) common_.pool->trim(peak);
  if (unreported.count != 0) common_.books.report(false);
  return done;
}

void SwapTurns::tend() {
  if (common_.pool) {
    // Keeps clean copies only while evictions are expected and the job can spare the host memory.
    if (common_.mover->host_kept() != Bytes{} && (!common_.pool->expected() || common_.budget.tight({})))
      give_up_copies();
    common_.pool->tend(!common_.books.idle());
  }
  if (growth_.read_host_limit()) common_.books.report(false);
}

// Host memory that holds evicted contents can be released only after the contents are restored. The pool must
// not grow before that, since it would take the host memory that the job is about to use.
bool SwapTurns::watch_host() {
  if (common_.pool == nullptr || (common_.pool->held() == Bytes{} && !common_.pool->expected())) return false;
  common_.pool->watch();
  if (!common_.budget.tight({})) return false;
  give_up_copies();
  common_.pool->tend(false);
  if (!common_.budget.used_up()) return false;
  common_.pool->bar();
  return common_.mover->host_used() != Bytes{};
}

}  // namespace sharedgpu
