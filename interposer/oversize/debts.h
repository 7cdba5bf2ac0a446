// SPDX-License-Identifier: Apache-2.0
// A handle's debt is the time that launches have lost because the handle is away. When the debt reaches the
// time of two exchanges (session/residence), the handle should be on the GPU. Whatever the program does next,
// this rule costs at most twice the time of the better choice (the ski rental problem).
//
// The debt restarts at zero if launches have used more bytes than the window holds since the handle's
// previous use. The handle would have left the window in this time anyway, so its earlier uses say nothing
// about the next uses.
//
// Pure and bounded: when there are kMostDebts handles, all debts restart at zero. Not thread-safe. No call
// fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "protocol/units.h"

namespace sharedgpu {

class Debts {
 public:
  static constexpr std::size_t kMostDebts = std::size_t{1} << 16;

  // Call this for each launch; `size` is the size of its operands.
  void launch(Bytes size) { used_ += size.count; }
  // The launch uses the handle, which is away. This makes the launch slower by `lost` nanoseconds. Returns
  // the debt.
  double add(std::uint64_t handle, double lost, Bytes window) {
    if (debts_.size() >= kMostDebts) debts_.clear();
    Debt& debt = debts_[handle];
    if (used_ - debt.at > window.count) debt.lost = 0;
    debt.lost += lost;
    debt.at = used_;
    return debt.lost;
  }
  // Call this when the handle enters the window.
  void clear(std::uint64_t handle) { debts_.erase(handle); }

 private:
  struct Debt {
    double lost = 0;
    std::uint64_t at = 0;  // the value of used_ at the last use of the handle
  };
  std::unordered_map<std::uint64_t, Debt> debts_;
  std::uint64_t used_ = 0;  // bytes that launches have used so far
};

}  // namespace sharedgpu
