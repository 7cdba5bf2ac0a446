// SPDX-License-Identifier: Apache-2.0
// Memory that the driver keeps for the program and that cannot be swapped: counted as pinned, as the driver
// says how much it is.
#pragma once

#include <mutex>

#include "interposer/memory/memory.h"

namespace sharedgpu::hooks {

// All with the owner's mutex.
struct Kept {
  Bytes counted;
  Bytes asked;  // more of it, by threads that wait for the answer or for the driver
};

// As much as the driver is known to keep, and as much as it may have taken already.
struct KeptNow {
  Bytes least;
  Bytes most;
};

// `now` tells, with the mutex. What it keeps is taken already: where the arbiter has no room for it, it is
// asked again at the next occasion. Only `may_grow` asks.
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
    // Meanwhile it may have been given back: once more.
  }
}

}  // namespace sharedgpu::hooks
