// SPDX-License-Identifier: Apache-2.0
// The bookkeeping of all handles: the order in which they leave and return, the busy ones, and their bytes by
// location. Guarded by its owner's lock.
#pragma once

#include <cstdint>

#include "interposer/memory/handle.h"
#include "interposer/memory/order.h"

namespace sharedgpu {

class Residency {
 public:
  // The kind of a growth that is requested before any memory is allocated.
  enum class Count { swappable, pinned };
  // Returns false if the total would exceed kLargestAllocation.
  bool grow(Count count, Bytes size);
  void shrink(Count count, Bytes size);
  // Counts growth that has already happened.
  void pin(Bytes size) { pinned_ += size; }

  Bytes swappable() const { return swappable_; }  // including growth that is being requested
  Bytes resident() const { return resident_; }    // mapped, or about to be
  Bytes pinned() const { return pinned_; }
  Bytes settling() const {
    return settling_;
  }  // bytes being pinned in place; included in the three counts above
  Bytes allowed() const { return allowed_; }
  void set_allowed(Bytes allowed) { allowed_ = allowed; }
  // The room for more resident bytes.
  Bytes room() const { return minus(allowed_, resident_); }
  bool exceeds() const { return resident_ > allowed_; }
  // The bytes that are on the host when at most allowed() bytes are resident.
  Bytes away() const { return minus(swappable_, allowed_); }

  // Returns true once the device is lost. Evicted memory then stays evicted.
  bool lost() const { return lost_; }
  void lose() { lost_ = true; }

  // Adds the handles of a new range, which are busy from the start.
  void add(Range& range);
  // Returns the time of a new allocation: a count of allocations.
  std::uint64_t next_use() { return ++uses_; }
  // Makes the handles the most recently used ones; a handle that is being moved keeps its place.
  void note_use(Range& range);
  // The handle is busy from claim() to unclaim() and belongs to the caller.
  void claim(Handle& handle);
  void unclaim(Handle& handle);
  bool any_busy() const { return busy_ != 0; }
  // Counts a handle that is mapped, or about to be mapped, as resident.
  void count(Handle& handle);
  void uncount_unmapped(Handle& handle);
  void set_place(Handle& handle, Handle::Place place);
  // Removes a range that is unmapped and not busy from the counts.
  void strike_off(Range& range);
  // Runs `change`, which may change fields that the order depends on. The handle must not be busy.
  template <class Change>
  void change(Handle& handle, Change change) {
    order_.remove(handle);
    change();
    order_.insert(handle);
  }

  Handle* first_to_leave() const { return order_.first_to_leave(); }
  Handle* first_to_return() const { return order_.first_to_return(room()); }
  Handle* last_copy() const { return order_.last_copy(); }
  // Returns true if the contents of all handles that are not busy are on the GPU.
  bool all_usable() const { return order_.all_usable(); }

 private:
  Order order_;  // the handles that are not busy
  std::size_t busy_ = 0;
  std::uint64_t uses_ = 0;
  bool lost_ = false;
  Bytes swappable_;
  Bytes resident_;
  Bytes pinned_;
  Bytes settling_;
  Bytes allowed_;
};

}  // namespace sharedgpu
