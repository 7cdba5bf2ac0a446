// SPDX-License-Identifier: Apache-2.0
// The state of all handles together: the order in which they are evicted and restored, how many are busy, and
// how many bytes are resident, pinned and away. Guarded by SwapCommon::mutex.
#pragma once

#include <algorithm>
#include <cstdint>

#include "interposer/memory/handle.h"
#include "interposer/memory/order.h"

namespace sharedgpu {

class Residency {
 public:
  // The two counts of allocated memory. A count grows before the memory is allocated.
  enum class Count { swappable, pinned };
  // Returns false if the count would exceed kLargestAllocation.
  bool grow(Count count, Bytes size);
  void shrink(Count count, Bytes size);
  // Counts growth of pinned memory that has already happened.
  void pin(Bytes size) { pinned_ += size; }

  Bytes swappable() const { return swappable_; }  // includes growth that is being requested
  // The window is the device memory that the arbiter has granted to an oversized process. The bytes beyond
  // the window are away. A process that is not oversized has no window.
  bool has_window() const { return window_ != kNoWindow; }
  Bytes window() const { return window_; }
  void set_window(Bytes size) {
    window_ = size;
    close_window_if_unneeded();
  }
  // The bytes of swappable() within the window, and the bytes beyond the window.
  Bytes granted() const { return std::min(swappable_, window_); }
  Bytes beyond() const { return minus(swappable_, window_); }
  Bytes away() const { return away_; }                    // size of the handles that are away
  Bytes in_window() const { return swappable_ - away_; }  // size of the handles that are not away
  Bytes unused_window() const { return minus(granted(), in_window()); }
  // Marks the handle, which must be busy, as away or not away, and updates the counts.
  void set_away(Handle& handle, bool away);
  // Bytes of handles that are mapped or are about to be mapped, except handles that are away or pinned in
  // place.
  Bytes resident() const { return resident_; }
  // resident() plus the unused part of the window, which is reserved for handles that are away. This part
  // does not raise the result above allowed().
  Bytes reported_resident() const {
    return std::max(resident_, std::min(resident_ + unused_window(), allowed_));
  }
  Bytes pinned() const { return pinned_; }
  Bytes settling() const {
    return settling_;
  }  // bytes that are being pinned in place, also counted in swappable(), resident() and pinned()
  Bytes allowed() const { return allowed_; }
  void set_allowed(Bytes allowed) { allowed_ = allowed; }
  // How many more bytes may become resident.
  Bytes room() const { return minus(allowed_, resident_); }
  // How many bytes may enter the window.
  Bytes room_in_window() const { return minus(std::min(room(), unused_window()), kept_free_); }
  // keep_free() keeps a part of the window free: for pinned memory, or until the arbiter has granted this
  // part. excess() returns the bytes that must leave the window to make this part free.
  void keep_free(Bytes size) { kept_free_ = size; }
  Bytes excess() const { return minus(kept_free_, unused_window()); }
  // Returns true if the handles that are not away exceed the window without this part.
  bool overfull() const { return in_window() + kept_free_ > granted(); }
  bool exceeds() const { return resident_ > allowed_; }
  // How many bytes are evicted when exactly allowed() bytes are resident.
  Bytes evicted_at_limit() const { return minus(in_window(), allowed_); }

  // Returns true if the device is lost. Evicted memory then stays evicted.
  bool lost() const { return lost_; }
  void lose() { lost_ = true; }

  // Adds the handles of a new range, which are busy from the start.
  void add(Range& range);
  // Returns the number of a new allocation, or of a new mapping by the program. It is larger than all earlier
  // numbers.
  std::uint64_t next_use() { return ++uses_; }
  // Marks the handles of the range as the most recently used handles, except handles that are busy.
  void note_use(Range& range);
  // Between claim() and unclaim(), the handle is busy, and only the caller may use it.
  void claim(Handle& handle);
  void unclaim(Handle& handle);
  bool any_busy() const { return busy_ != 0; }
  // Counts the handle as resident. Call it when the handle is mapped or about to be mapped.
  void count(Handle& handle);
  void uncount_unmapped(Handle& handle);
  void set_place(Handle& handle, Handle::Place place);
  // Replaces the handles of the range, which are busy and have no memory, by the busy handle `whole`.
  void replace(Range& range, Handle whole);
  // Subtracts the handles of a range from the counts. Its handles must be unmapped and not busy.
  void strike_off(Range& range);
  // Runs `change`, which may change fields of the handle that determine its position in the order of
  // eviction. The handle must not be busy.
  template <class Change>
  void change(Handle& handle, Change change) {
    order_.remove(handle);
    change();
    order_.insert(handle);
  }

  Handle* first_to_leave() const { return order_.first_to_leave(); }
  Handle* first_to_return() const { return order_.first_to_return(room()); }
  Handle* last_copy() const { return order_.last_copy(); }
  // Returns true if all handles that are not busy are usable (handle.h).
  bool all_usable() const { return order_.all_usable(); }

 private:
  static constexpr Bytes kNoWindow{~0ull};

  void close_window_if_unneeded();

  Order order_;  // the handles that are not busy
  std::size_t busy_ = 0;
  std::uint64_t uses_ = 0;
  bool lost_ = false;
  Bytes swappable_;
  Bytes away_;
  Bytes window_ = kNoWindow;
  Bytes kept_free_;
  Bytes resident_;
  Bytes pinned_;
  Bytes settling_;
  Bytes allowed_;
};

}  // namespace sharedgpu
