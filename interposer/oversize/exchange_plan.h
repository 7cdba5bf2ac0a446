// SPDX-License-Identifier: Apache-2.0
// Chooses the handles that one exchange moves. The needed handles come in first. The handles that are needed
// last leave (Belady's rule on the learned order). Among handles without a known next need, those whose last
// need is oldest leave first.
//
// An exchange waits until the GPU has no work left, which takes as long as moving a few handles. So one
// exchange also brings in handles that will be needed soon. Each of them must be needed much sooner than the
// handles that leave for it. If no order is learned, nothing comes in early.
//
// A pure function: it has no state, does not fail, and allocates memory in proportion to the number of
// candidates. It takes O(n log n) for n candidates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "interposer/oversize/need_order.h"
#include "protocol/units.h"

namespace sharedgpu {

// A handle that an exchange may move. Handles that must stay where they are, such as pinned handles, are no
// candidates.
struct Candidate {
  std::uint64_t handle;  // its address
  Bytes size;
  bool on_gpu;
};

// The handles to move, each given by its address. When all of `out` have left the window, all of `in` fit
// into it.
struct Plan {
  std::vector<std::uint64_t> out;
  std::vector<std::uint64_t> in;
};

// `needed`: the handles that the next launch needs, the most important first. In this order, each of them
// comes in if it fits into the window beside those that come in before it; otherwise it stays away. Addresses
// that are no candidates are ignored. `free`: the part of the window that has no handle. `most`: handles come
// in early only while the total of all bytes that come in is at most this. The needed handles may exceed it.
Plan plan(const NeedOrder& order, std::span<const Candidate> candidates,
          std::span<const std::uint64_t> needed, Bytes free, Bytes most);

}  // namespace sharedgpu
