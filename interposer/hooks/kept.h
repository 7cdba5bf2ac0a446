// SPDX-License-Identifier: Apache-2.0
// Memory that the driver keeps for the program and that cannot be swapped. This memory counts as pinned, with
// the size that the driver reports.
#pragma once

#include <mutex>

#include "interposer/memory/memory.h"

namespace sharedgpu::hooks {

// All fields are guarded by the owner's mutex.
struct Kept {
  Bytes counted;
  Bytes asked;  // further bytes that threads have requested; these threads wait for the arbiter's answer or
                // for the driver
};

// Lower and upper bound of the memory that the driver keeps.
struct KeptNow {
  Bytes least;
  Bytes most;
};

// Adjusts `kept.counted` to the bounds that `now` returns. `now` is called with the mutex held. If the lower
// bound exceeds the memory that is counted or being requested, and `may_grow` is true, the function requests
// the difference from the arbiter. The driver has already allocated this memory. So after a refusal, the next
// recount for which `may_grow` is true requests the difference again.
template <class Now>
void recount(std::mutex& mutex, Kept& kept, Pinning& memory, bool may_grow, Now now) {
  for (Bytes more{1}; more != Bytes{}; may_grow = false) {
    Bytes less;
    {
      const std::lock_guard lock(mutex);
      const KeptNow there = now();
      less = minus(kept.counted, there.most);
      more = may_grow ? minus(there.least, kept.counted + kept.asked) : Bytes{};
      kept.counted -= less;
      kept.asked += more;
    }
    if (less != Bytes{}) memory.unpin(less);
    if (more == Bytes{}) return;
    const bool granted = memory.pin(more) == CUDA_SUCCESS;
    const std::lock_guard lock(mutex);
    kept.asked -= more;
    if (granted) kept.counted += more;
    // The driver may have freed memory since `now` was called, so the loop checks once more.
  }
}

}  // namespace sharedgpu::hooks
