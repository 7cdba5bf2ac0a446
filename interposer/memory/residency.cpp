// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/residency.h"

#include <utility>

#include "interposer/memory/memory.h"

namespace sharedgpu {

bool Residency::grow(Count count, Bytes size) {
  Bytes& sum = count == Count::pinned ? pinned_ : swappable_;
  if (size > minus(kLargestAllocation, sum)) return false;
  sum += size;
  return true;
}

void Residency::shrink(Count count, Bytes size) {
  Bytes& sum = count == Count::pinned ? pinned_ : swappable_;
  sum = minus(sum, size);
  close_window_if_unneeded();
}

// If all memory fits the window, the process is not oversized any more. Handles that are still away may be
// moved to the GPU as before.
void Residency::close_window_if_unneeded() {
  if (swappable_ <= window_) window_ = kNoWindow;
}

void Residency::add(Range& range) {
  const std::uint64_t now = next_use();
  for (Handle& handle : range.handles) {
    handle.last_used = now;
    handle.busy = true;
    ++busy_;
  }
}

void Residency::note_use(Range& range) {
  const std::uint64_t now = next_use();
  for (Handle& handle : range.handles)
    if (!handle.busy) change(handle, [&] { handle.last_used = now; });
}

void Residency::claim(Handle& handle) {
  order_.remove(handle);
  handle.busy = true;
  ++busy_;
}

void Residency::unclaim(Handle& handle) {
  uncount_unmapped(handle);
  handle.busy = false;
  --busy_;
  order_.insert(handle);
}

void Residency::count(Handle& handle) {
  if (handle.counted || handle.away || handle.place == Handle::Place::settled) return;
  handle.counted = true;
  resident_ += handle.size;
}

void Residency::uncount_unmapped(Handle& handle) {
  if (handle.mapped || !handle.counted) return;
  handle.counted = false;
  resident_ -= handle.size;
}

void Residency::set_away(Handle& handle, bool away) {
  if (handle.away == away) return;
  handle.away = away;
  if (away)
    away_ += handle.size;
  else
    away_ -= handle.size;
  if (away && handle.counted) {
    handle.counted = false;
    resident_ -= handle.size;
  } else if (!away && handle.mapped) {
    count(handle);
  }
}

void Residency::set_place(Handle& handle, Handle::Place place) {
  if (handle.place == place) return;
  if (!handle.busy) order_.remove(handle);
  const Handle::Place before = std::exchange(handle.place, place);
  if (before == Handle::Place::free) pinned_ += handle.size;
  if (place == Handle::Place::free) pinned_ -= handle.size;
  if (before == Handle::Place::settling) settling_ -= handle.size;
  if (place == Handle::Place::settling) settling_ += handle.size;
  if (place == Handle::Place::settled) {
    if (has_window()) window_ = minus(window_, handle.size);
    swappable_ -= handle.size;
    resident_ -= handle.size;
    handle.counted = false;
  }
  if (before == Handle::Place::settled) {
    if (has_window()) window_ += handle.size;
    swappable_ += handle.size;
  }
  if (!handle.busy) order_.insert(handle);
}

void Residency::replace(Range& range, Handle whole) {
  for (Handle& handle : range.handles) uncount_unmapped(handle);
  busy_ -= range.handles.size() - 1;
  range.handles = {std::move(whole)};
  count(range.handles.front());
}

// If a freed handle was pinned in place, or was being pinned, its size is not added to the window again: the
// arbiter may already have subtracted this size, and grants growth only on request.
void Residency::strike_off(Range& range) {
  for (Handle& handle : range.handles) {
    const bool pinned = handle.place != Handle::Place::free;
    set_place(handle, Handle::Place::free);
    if (pinned && has_window()) window_ = minus(window_, handle.size);
    order_.remove(handle);
    swappable_ -= handle.size;
    if (handle.away) away_ -= handle.size;
  }
  close_window_if_unneeded();
}

}  // namespace sharedgpu
