// SPDX-License-Identifier: Apache-2.0
// The objects that SwapMemory's parts use, and the state that they share under one lock. There is only one
// lock, so that MemoryUse is a consistent reading of the whole state.
#pragma once

#include <memory>

#include "interposer/memory/address_space.h"
#include "interposer/memory/device.h"
#include "interposer/memory/host_budget.h"
#include "interposer/memory/landmarks.h"
#include "interposer/memory/memory.h"
#include "interposer/memory/mover.h"
#include "interposer/memory/mutex.h"
#include "interposer/memory/program_allocations.h"
#include "interposer/memory/residency.h"

namespace sharedgpu {

struct SwapOptions {
  Bytes large = mebibytes(8);           // allocations from this size on have a range of their own
  Bytes handle = mebibytes(64);         // size of the handles of a large allocation's range
  Bytes largest_arena = mebibytes(64);  // largest size of an arena; small allocations share arenas
  Bytes report_every = mebibytes(128);  // bytes moved between two reports
  Bytes kept_blocks = mebibytes(512);   // unused blocks of away memory that are kept for exchanges
                                        // (SwapExchange::tend)
  // The job's limits reserve host memory for evicting the whole window. Unused blocks may occupy the part of
  // it that the host pool does not hold. If this part is smaller than `kept_besides`, at most `kept_besides`
  // bytes of unused blocks are kept: enough for one exchange. The blocks beyond the part count against the
  // limits of the job, too (arbiter/core/memory/admission.cpp).
  Bytes kept_besides = mebibytes(256);
  // The time for which allocate() waits for memory that the driver is still taking from another process.
  Nanoseconds patience = std::chrono::seconds(2);
};

struct SwapCommon {
  // wait_and_claim() and claim_all() make handles busy for the calling thread; unclaim() ends this.
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

  // Waits until `has_spare` is false: the device memory of all handles that have left the window is free, or
  // other handles use it. An exchange waits for no other thread, so this wait is short.
  void wait_for_spare() REQUIRES(mutex) {
    while (has_spare) changed.wait(mutex);
  }

  // The following objects are used without the lock.
  Device& device;
  HostBudget& budget;
  Books& books;
  const SwapOptions options;
  const std::unique_ptr<HostPool> pool;  // pinned host memory; null with the managed backend, whose evicted
                                         // contents the driver keeps
  const std::unique_ptr<AwayBlocks> blocks;  // host memory for handles that are away; null with the managed
                                             // backend
  const std::unique_ptr<Mover> mover;        // moves contents to host memory and back

  // Never held during a driver call that copies or waits, nor during a call of a function of Books
  // (memory.h).
  Mutex mutex = {};
  Condition changed = {};  // notified when a handle is not busy any more, less memory is resident, the
                           // resident limit has changed, a deferred free is done, `has_spare` is false again,
                           // or SwapProgram may begin or has ended a merge
  AddressSpace space GUARDED_BY(mutex) = {};
  Residency residency GUARDED_BY(mutex) = {};
  ProgramAllocations program GUARDED_BY(mutex) = {};
  Landmarks landmarks GUARDED_BY(mutex) = {};
  bool has_spare GUARDED_BY(mutex) = false;  // an exchange keeps device memory that no count includes
                                             // (Mover::end_leave)
};

}  // namespace sharedgpu
