// SPDX-License-Identifier: Apache-2.0
// What it costs to run a kernel with an operand away, learned from the times of launches, per kernel and
// parameter word. Kernels that touch each byte about once cost the time of the bus; matrix products up to
// fifty times as much; kernels that touch few of the bytes cost nearly nothing.
//
// Pure and bounded: at most kMostKeys keys. Not thread-safe. No call fails.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "protocol/units.h"

namespace sharedgpu {

class KernelCosts {
 public:
  struct Key {
    std::uintptr_t kernel = 0;  // the kernel's CUfunction or CUkernel
    std::uint32_t word = 0;     // the offset of the word in the kernel's parameters
    auto operator<=>(const Key&) const = default;
  };
  // An operand of a launch, as far as it can be guessed: the kernel may touch fewer bytes.
  struct Operand {
    Key key;
    Bytes size;
    Bytes away;
  };
  static constexpr std::size_t kMostKeys = std::size_t{1} << 14;

  // By how many nanoseconds a launch is slower for each byte of the operand that is away; nullopt if no such
  // launch has been timed. Before a launch with the operand on the GPU has been timed, this is the whole
  // time.
  std::optional<double> per_byte(Key key) const;

  // Counts a launch, and returns true if its time should be measured: the first launches with an operand
  // away, and later ones at growing distances; also the first ones on the GPU of a kernel that has run with
  // an operand away.
  bool should_time(std::span<const Operand> operands);
  // A launch with these operands took the time `took`. The time must not include the loading of the kernel's
  // code.
  void ran(std::span<const Operand> operands, Nanoseconds took);

 private:
  struct Record {
    std::uint32_t away_launches = 0;
    std::uint32_t here_launches = 0;
    // Of the last timed launch with operands away. Zero bytes: there was none.
    Nanoseconds took{};
    Bytes all;                   // of all operands of that launch
    Bytes away;                  // the part that was away
    std::optional<double> here;  // nanoseconds per byte of all operands, with all of them on the GPU
  };
  Record* record_of(Key key);  // null if there are too many keys

  std::map<Key, Record> records_;
};

}  // namespace sharedgpu
