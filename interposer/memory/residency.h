// SPDX-License-Identifier: Apache-2.0
// The handles: the order in which they leave and return, the busy ones, and their bytes by where they are.
// Guarded by its owner's lock.
#pragma once

#include <cstdint>

#include "interposer/memory/handle.h"
#include "interposer/memory/order.h"

namespace sharedgpu {

class Residency {
 public:
  // Growth of which leave is asked, before there is anything.
  enum class Count { swappable, pinned };
  // False: it would be more than kLargestAllocation.
  bool grow(Count count, Bytes size);
  void shrink(Count count, Bytes size);
  // Growth that has happened already.
  void pin(Bytes size) { pinned_ += size; }

  Bytes swappable() const { return swappable_; }  // growth that is being asked for included
  Bytes resident() const { return resident_; }    // mapped, or about to be
  Bytes pinned() const { return pinned_; }
  Bytes settling() const { return settling_; }  // of the handles that are; in the three before
  Bytes allowed() const { return allowed_; }
  void set_allowed(Bytes allowed) { allowed_ = allowed; }
  // The room for more resident bytes.
  Bytes room() const { return minus(allowed_, resident_); }
  bool exceeds() const { return resident_ > allowed_; }
  // The bytes that are on the host when no more than allowed() is resident.
  Bytes away() const { return minus(swappable_, allowed_); }

  // A new handle, busy from the start.
  void add(Handle& handle);
  // It is busy from claim() to unclaim(): the caller's alone.
  void claim(Handle& handle);
  void unclaim(Handle& handle);
  bool any_busy() const { return busy_ != 0; }
  // It is mapped, or about to be.
  void count(Handle& handle);
  void uncount_unmapped(Handle& handle);
  void set_place(Handle& handle, Handle::Place place);
  // A range that is unmapped and unclaimed counts no more.
  void strike_off(Range& range);
  // The handle is not busy: `change` may change what the order depends on.
  template <class Change>
  void change(Handle& handle, Change change) {
    order_.remove(handle);
    change();
    order_.insert(handle);
  }

  Handle* first_to_leave() const { return order_.first_to_leave(); }
  Handle* first_to_return() const { return order_.first_to_return(room()); }
  Handle* last_copy() const { return order_.last_copy(); }
  // True if the contents of all handles that are not busy are on the GPU.
  bool all_usable() const { return order_.all_usable(); }

 private:
  Order order_;  // of the handles that are not busy
  std::size_t busy_ = 0;
  Bytes swappable_;
  Bytes resident_;
  Bytes pinned_;
  Bytes settling_;
  Bytes allowed_;
};

}  // namespace sharedgpu
