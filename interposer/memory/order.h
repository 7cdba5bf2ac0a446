// SPDX-License-Identifier: Apache-2.0
// The order in which handles leave the GPU and come back: least recently used first, and back the other way
// round, so that what comes back last is what would leave first. Not thread-safe.
//
// All of a tenant's memory is on the GPU while it runs, so a turn leaves every handle equally recent; what
// tells them apart is when something was last allocated in them.
#pragma once

#include <set>

#include "interposer/memory/handle.h"

namespace sharedgpu {

class Order {
 public:
  // A handle that nobody moves; none of its fields may change until remove().
  void insert(Handle& handle);
  void remove(Handle& handle);

  // The mapped handle that leaves next, of those that may; null: none.
  Handle* first_to_leave() const;
  // The handle that comes back next among those that need at most `room` more physical memory; null: none.
  Handle* first_to_return(Bytes room) const;
  // The handle whose clean copy will be missed last: it would leave last; null: none has one.
  Handle* last_copy() const { return copied_.empty() ? nullptr : *copied_.rbegin(); }
  // Whether the contents of all handles here are on the GPU.
  bool all_usable() const { return missing_.empty(); }

 private:
  struct UsedBefore {
    bool operator()(const Handle* a, const Handle* b) const {
      return a->last_used != b->last_used ? a->last_used < b->last_used : a->address < b->address;
    }
  };
  std::set<Handle*, UsedBefore> mapped_;
  std::set<Handle*, UsedBefore> missing_;
  std::set<Handle*, UsedBefore> copied_;  // with clean copies
};

}  // namespace sharedgpu
