// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/swap_exchange.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace sharedgpu {
namespace {

// An allocation up to this size most likely holds a single array. A kernel that gets the address of this
// array uses all of it.
constexpr Bytes kOneArray = mebibytes(512);
// Unused blocks are kept for the next exchanges, unless the job itself needs the host memory: at most a
// quarter (1 / kKeptPart) of the bytes that are away, or SwapOptions::kept_blocks if that is more.
constexpr std::uint64_t kKeptPart = 4;

// The handles that move in one direction, first in first out. Each direction has two lanes: while one copy
// runs, the driver's calls for the other handle are made.
class Way {
 public:
  static constexpr unsigned kLanes = Lane::kCount / 2;
  Way(const std::vector<CUdeviceptr>& handles, unsigned first_lane)
      : waiting_(handles.begin(), handles.end()), first_(first_lane) {}
  bool may_begin() const { return !waiting_.empty() && moving_.size() < kLanes; }
  bool waits() const { return !waiting_.empty(); }
  bool moves() const { return !moving_.empty(); }
  bool full() const { return moving_.size() == kLanes; }
  CUdeviceptr next() const { return waiting_.front(); }
  void skip() { waiting_.pop_front(); }
  Lane lane() const { return {first_ + begun_ % kLanes}; }
  void begun(Handle& handle) {
    moving_.push_back({&handle, lane()});
    ++begun_;
    waiting_.pop_front();
  }
  std::pair<Handle*, Lane> pop() {
    const auto first = moving_.front();
    moving_.pop_front();
    return first;
  }
  void give_up() { waiting_.clear(); }

 private:
  std::deque<CUdeviceptr> waiting_;
  std::deque<std::pair<Handle*, Lane>> moving_;
  unsigned first_;
  unsigned begun_ = 0;
};

}  // namespace

Bytes SwapExchange::window() const {
  const MutexLock lock(common_.mutex);
  return common_.residency.in_window();
}

Bytes SwapExchange::room() const {
  const MutexLock lock(common_.mutex);
  return common_.residency.room_in_window();
}

// Subtracts the device memory that may stay unused, since additional host memory is needed in its place. Less
// than the size of two handles may stay unused because the window grows in steps
// (GrowthAccount::widen_window), and less than the size of one because a handle is away as a whole. The last
// handle may be larger than the allocation by less than a granule. If there is no window, an allocation of at
// most `device` bytes opens none. So in this case nothing is subtracted from `device`.
Bytes SwapExchange::growth(Bytes device, Nanoseconds now) const {
  const Bytes cut = Bytes{3 * common_.options.handle.count} + common_.device.granularity();
  const Bytes host = std::min(common_.blocks->room(now), kLargestAllocation);
  const MutexLock lock(common_.mutex);
  const Bytes more = host + common_.residency.unused_window();
  return common_.residency.has_window() ? minus(device + more, cut) : device + minus(more, cut);
}

Bytes SwapExchange::excess() const {
  const MutexLock lock(common_.mutex);
  return common_.residency.excess();
}

std::vector<SwapExchange::Span> SwapExchange::extent(CUdeviceptr address) {
  if (const Range* range = common_.space.find_whole(address, {1}); range != nullptr) {
    const AddressRange block = *common_.space.find(address);
    const CUdeviceptr end = block.base + block.size.count;
    const CUdeviceptr last = block.size <= kOneArray ? end : common_.landmarks.next(address, end);
    return {{range, address, {last - address}}};
  }
  std::vector<Span> spans;
  const CUdeviceptr last = common_.landmarks.next(address, address + kOneArray.count);
  for (CUdeviceptr at = address; at < last;) {
    const auto mapping = common_.program.mapping_at(at);
    if (!mapping) break;
    const CUdeviceptr end = std::min(last, mapping->address + mapping->range->size.count);
    spans.push_back({mapping->range, mapping->range->base + (at - mapping->address), {end - at}});
    at = end;
  }
  return spans;
}

std::vector<AwayHandle> SwapExchange::operands(CUdeviceptr address) {
  std::vector<AwayHandle> found;
  const MutexLock lock(common_.mutex);
  const std::vector<Span> spans = extent(address);
  if (spans.empty()) return found;
  common_.landmarks.note(address);
  for (const Span& span : spans) add_handles(span, found);
  return found;
}

std::vector<AwayHandle> SwapExchange::within(CUdeviceptr address, Bytes size) const {
  std::vector<AwayHandle> found;
  const MutexLock lock(common_.mutex);
  Range* const block = common_.space.find_whole(address, size);
  const auto [range, begin] =
      block != nullptr ? ProgramAllocations::Under{block, address} : common_.program.under(address, size);
  if (range != nullptr) add_handles({range, begin, size}, found);
  return found;
}

void SwapExchange::add_handles(const Span& span, std::vector<AwayHandle>& found) {
  for (const Handle& handle : span.range->handles) {
    const bool overlaps =
        handle.address < span.begin + span.size.count && span.begin < handle.address + handle.size.count;
    if (overlaps && handle.place == Handle::Place::free)
      found.push_back({handle.address, handle.size, handle.away});
  }
}

std::vector<AwayHandle> SwapExchange::handles() const {
  std::vector<AwayHandle> found;
  const MutexLock lock(common_.mutex);
  for (const auto& [base, range] : common_.space.ranges())
    for (const Handle& handle : range.handles)
      if (!handle.busy && handle.place == Handle::Place::free && handle.usable())
        found.push_back({handle.address, handle.size, handle.away});
  return found;
}

// Claims the handle if it still exists, can be moved, and is away or in the window as `away` says. Otherwise
// returns null.
Handle* SwapExchange::claim(CUdeviceptr address, bool away) {
  Handle* const handle = common_.space.handle_at(address);
  if (handle == nullptr || handle->busy || handle->place != Handle::Place::free || !handle->usable() ||
      handle->away != away)
    return nullptr;
  common_.residency.claim(*handle);
  return handle;
}

// Returns false if no host memory is left or the driver fails, so that no other handle should leave either.
bool SwapExchange::begin_leave(CUdeviceptr address, Lane lane, Handle** begun) {
  Handle* const handle = claim(address, false);
  if (handle == nullptr) return true;
  common_.mutex.unlock();
  const Mover::Begun result = common_.mover->begin_leave(*handle, lane);
  common_.mutex.lock();
  if (result == Mover::Begun::yes)
    *begun = handle;
  else
    common_.unclaim(*handle);
  return result == Mover::Begun::yes;
}

bool SwapExchange::end_leave(Handle& handle, Lane lane) {
  common_.mutex.unlock();
  const bool left = common_.mover->end_leave(handle, lane);
  common_.mutex.lock();
  if (left) common_.residency.set_away(handle, true);
  common_.has_spare |= left;
  common_.unclaim(handle);
  return left;
}

// Returns false if the window has no room for the handle, or the driver fails.
bool SwapExchange::begin_enter(CUdeviceptr address, Lane lane, Handle** begun) {
  Handle* const handle = claim(address, true);
  if (handle == nullptr) return true;
  bool entered = handle->size <= common_.residency.room_in_window();
  if (entered) {
    common_.residency.set_away(*handle, false);
    common_.mutex.unlock();
    entered = common_.mover->begin_enter(*handle, lane);
    common_.mutex.lock();
    if (!entered) keep_away(*handle);
  }
  if (entered)
    *begun = handle;
  else
    common_.unclaim(*handle);
  return entered;
}

bool SwapExchange::end_enter(Handle& handle, Lane lane) {
  common_.mutex.unlock();
  const bool entered = common_.mover->end_enter(handle, lane);
  common_.mutex.lock();
  if (!entered) keep_away(handle);
  common_.unclaim(handle);
  return entered;
}

// Called when a handle could not enter the window. Marks the handle as away, unless the driver has refused to
// unmap the new device memory.
void SwapExchange::keep_away(Handle& handle) {
  const bool has_device_memory = handle.mapped && handle.contents == Handle::Contents::in_block;
  if (!has_device_memory) common_.residency.set_away(handle, true);
}

// Also returns true if the handle has been freed.
bool SwapExchange::in_window(CUdeviceptr address) {
  const Handle* const handle = common_.space.handle_at(address);
  return handle == nullptr || !handle->away;
}

// A handle can enter as soon as enough others have left. If a handle cannot leave, no more handles begin to
// leave. If a copy into the window fails, no more handles begin to enter. If a handle cannot begin to enter
// although no other handle is leaving, it is skipped.
bool SwapExchange::exchange(const std::vector<CUdeviceptr>& out, const std::vector<CUdeviceptr>& in) {
  const DeviceScope scope(common_.device);
  if (!scope.ok() || !common_.mover->settle()) return false;
  Way leaving(out, 0);
  Way entering(in, Way::kLanes);
  MutexLock lock(common_.mutex);
  for (;;) {
    while (leaving.may_begin()) {
      Handle* begun = nullptr;
      if (!begin_leave(leaving.next(), leaving.lane(), &begun))
        leaving.give_up();
      else if (begun != nullptr)
        leaving.begun(*begun);
      else
        leaving.skip();
    }
    bool full = false;
    while (entering.may_begin() && !full) {
      Handle* begun = nullptr;
      full = !begin_enter(entering.next(), entering.lane(), &begun);
      if (full && !leaving.moves()) {  // no handle that could still make room is leaving
        entering.skip();
        full = false;
      } else if (begun != nullptr) {
        entering.begun(*begun);
      } else if (!full) {
        entering.skip();
      }
    }
    if (!leaving.moves() && !entering.moves()) break;
    if (leaving.moves()) {
      const auto [handle, lane] = leaving.pop();
      if (!end_leave(*handle, lane)) leaving.give_up();
    }
    if (entering.moves() && (entering.full() || !leaving.moves())) {
      const auto [handle, lane] = entering.pop();
      if (!end_enter(*handle, lane)) entering.give_up();
    }
  }
  bool all = true;
  for (const CUdeviceptr each : in) all &= in_window(each);
  lock.unlock();
  common_.mover->free_spare();
  lock.lock();
  common_.has_spare = false;
  common_.changed.notify_all();
  lock.unlock();
  common_.books.report(false);
  return all;
}

void SwapExchange::tend() {
  Bytes away;
  Bytes granted;
  {
    const MutexLock lock(common_.mutex);
    away = common_.residency.away();
    granted = common_.residency.granted();
  }
  const bool keeps = away != Bytes{} && !common_.budget.tight({});
  const Bytes useful = std::max(common_.options.kept_blocks, Bytes{away.count / kKeptPart});
  const Bytes permitted = std::max(common_.options.kept_besides, minus(granted, common_.mover->host_held()));
  if (common_.blocks->trim(keeps ? std::min(useful, permitted) : Bytes{})) common_.books.report(false);
}

}  // namespace sharedgpu
