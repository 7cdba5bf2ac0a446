// SPDX-License-Identifier: Apache-2.0
// The environment of SwapMemory's parts, and their common state under one lock. There is one lock, since
// MemoryUse is one consistent reading.
#pragma once

#include <memory>

#include "interposer/memory/address_space.h"
#include "interposer/memory/device.h"
#include "interposer/memory/host_budget.h"
#include "interposer/memory/memory.h"
#include "interposer/memory/mover.h"
#include "interposer/memory/mutex.h"
#include "interposer/memory/program_allocations.h"
#include "interposer/memory/residency.h"

namespace sharedgpu {

struct SwapOptions {
  Bytes large = mebibytes(8);           // an allocation of this size or more has its own range
  Bytes handle = mebibytes(64);         // size of the handles of a large allocation's range
  Bytes largest_arena = mebibytes(64);  // arenas, for smaller allocations, grow up to this size
  Bytes report_every = mebibytes(128);  // bytes moved between two reports
  // allocate() waits so long for memory that the driver is still taking from another process.
  Nanoseconds patience = std::chrono::seconds(2);
};

struct SwapCommon {
  // These functions acquire handles for the caller, and release a handle.
  void wait_and_claim(Handle& handle) REQUIRES(mutex) {
    while (handle.busy) changed.wait(mutex);
    residency.claim(handle);
  }
  void claim_all(Range& range) REQUIRES(mutex) {
    for (Handle& handle : range.handles) wait_and_claim(handle);
  }
  void unclaim(Handle& handle) REQUIRES(mutex) {
    residency.unclaim(handle);
    changed.notify_all();
  }

  // The environment, used without the lock.
  Device& device;
  const HostBudget& budget;
  Books& books;
  const SwapOptions options;
  const std::unique_ptr<HostPool> pool;  // pinned host memory; null if the driver keeps evicted contents
  const std::unique_ptr<Mover> mover;    // moves contents to host memory and back

  // Never held across a driver call that copies or waits, nor across a call of Books.
  Mutex mutex = {};
  Condition changed = {};  // notified when a handle has ceased to be busy, less memory is resident, or a
                           // deferred free is done
  AddressSpace space GUARDED_BY(mutex) = {};
  Residency residency GUARDED_BY(mutex) = {};
  ProgramAllocations program GUARDED_BY(mutex) = {};
};

}  // namespace sharedgpu
