// SPDX-License-Identifier: Apache-2.0
// The order of eviction and restore. Handles are evicted least recently used first, and restored in the
// reverse order. So the handle that is restored last would be evicted first. Not thread-safe.
//
// While a tenant runs, all of its memory is on the GPU and its kernels may use any of it, so the time of a
// handle's last use is unknown. So handles are ordered by the time of the last allocation in them, or of the
// program's last mapping of them.
//
// To change the order:
//   1. Change UsedBefore, which must be a strict order of all handles. If the order uses another field of
//      Handle (handle.h), this field may change only in Residency::change() or while the handle is busy.
//   2. Test the new order in order.cpp and turns.cpp of tests/unit/interposer/memory.
//      tests/property/interposer/memory/swap.cpp needs no change, because it accepts any order.
//   3. Change the descriptions of the order in interposer/memory/README.md, TurnMemory (memory.h) and Evict
//      (protocol/messages.h).
//
// arbiter/core/memory/eviction.cpp decides the order in which tenants evict.
#pragma once

#include <set>

#include "interposer/memory/handle.h"

namespace sharedgpu {

class Order {
 public:
  // Adds a handle that is not being moved. None of the handle's fields may change until remove().
  void insert(Handle& handle);
  void remove(Handle& handle);

  // The mapped handle to evict next; null if no handle can be evicted.
  Handle* first_to_leave() const;
  // The handle to restore next, among the handles that need at most `room` bytes of additional physical
  // memory; null if there is no such handle.
  Handle* first_to_return(Bytes room) const;
  // Among the handles with a clean copy, returns the handle that would be evicted last, since its copy is the
  // least useful. Returns null if no handle has a clean copy.
  Handle* last_copy() const { return copied_.empty() ? nullptr : *copied_.rbegin(); }
  // Returns true if all handles in this order are usable (handle.h). A handle without memory is not usable.
  bool all_usable() const { return missing_.empty(); }

 private:
  struct UsedBefore {
    bool operator()(const Handle* a, const Handle* b) const {
      return a->last_used != b->last_used ? a->last_used < b->last_used : a->address < b->address;
    }
  };
  std::set<Handle*, UsedBefore> mapped_;
  std::set<Handle*, UsedBefore> missing_;
  std::set<Handle*, UsedBefore> copied_;  // handles with clean copies
};

}  // namespace sharedgpu
