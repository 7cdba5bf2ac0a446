// SPDX-License-Identifier: Apache-2.0
// The addresses that the program has passed to CUDA kernels as arguments. Programs often keep many arrays in
// one large allocation. These addresses show where the arrays begin. At most kMost addresses are kept. Not
// thread-safe.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <set>

#include "protocol/units.h"

namespace sharedgpu {

class Landmarks {
 public:
  static constexpr std::size_t kMost = 65536;

  // If the set is full, forgets all earlier addresses.
  void note(CUdeviceptr address) {
    if (addresses_.size() >= kMost) addresses_.clear();
    addresses_.insert(address);
  }
  // The first noted address after `address`, but at most `end`.
  CUdeviceptr next(CUdeviceptr address, CUdeviceptr end) const {
    const auto found = addresses_.upper_bound(address);
    return found == addresses_.end() ? end : std::min(end, *found);
  }
  // Called when the memory is freed: a later allocation at these addresses holds other arrays.
  void forget(CUdeviceptr address, Bytes size) {
    addresses_.erase(addresses_.lower_bound(address), addresses_.lower_bound(address + size.count));
  }

 private:
  std::set<CUdeviceptr> addresses_;
};

}  // namespace sharedgpu
