// SPDX-License-Identifier: Apache-2.0
// The cost of running a kernel with an operand away, learned from the times of launches, per kernel and
// parameter word. A kernel that touches each byte about once costs the time to move these bytes over the bus.
// A matrix product costs up to fifty times as much. A kernel that touches few of the bytes costs nearly
// nothing.
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
    std::uint32_t word = 0;     // the offset of the operand's pointer in the kernel's parameters, in bytes
    auto operator<=>(const Key&) const = default;
  };
  // A guessed operand of a launch. The kernel may touch fewer or more bytes.
  struct Operand {
    Key key;
    Bytes size;
    Bytes away;
  };
  static constexpr std::size_t kMostKeys = std::size_t{1} << 14;

  // The nanoseconds that a launch loses for each byte of this operand, if this byte is away; nullopt if no
  // launch with the operand away has been timed. Until a launch with all operands on the GPU has been timed,
  // the whole time of the launch counts as lost.
  std::optional<double> per_byte(Key key) const;

  // Counts a launch, and returns true if its time should be measured. The first, the fourth, the sixteenth
  // launch and so on with an operand away are measured. When such a launch has been timed, launches with all
  // operands on the GPU are measured at the same intervals.
  bool should_time(std::span<const Operand> operands);
  // Records that a launch with these operands took the time `took`. The time must not include the loading of
  // the kernel's code.
  void ran(std::span<const Operand> operands, Nanoseconds took);

 private:
  struct Record {
    std::uint32_t away_launches = 0;
    std::uint32_t here_launches = 0;
    // Figures of the last timed launch with this operand away; zero bytes if there was none.
    Nanoseconds took{};
    Bytes all;                   // size of all operands of this launch
    Bytes away;                  // the bytes of these operands that were away
    std::optional<double> here;  // the shortest time of the timed launches with all operands on the GPU, in
                                 // nanoseconds per byte of their operands
  };
  // Returns the record of the key, and adds the record if it is missing. Returns null if it is missing and
  // kMostKeys records exist.
  Record* record_of(Key key);

  std::map<Key, Record> records_;
};

}  // namespace sharedgpu
