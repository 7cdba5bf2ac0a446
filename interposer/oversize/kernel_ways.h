// SPDX-License-Identifier: Apache-2.0
// What a kernel does with an operand that is away. Some kernels touch each byte about once and run at the
// speed of the bus (streaming kernels); others, such as matrix products, are up to a hundred times slower
// than with the operand on the GPU. Both are learned from the times of launches, per kernel and parameter
// word.
//
// Pure and bounded: at most kMostKeys keys. Not thread-safe. No call fails.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>

#include "protocol/units.h"

namespace sharedgpu {

enum class Way {
  untried,    // no launch with the operand away has been timed
  streams,    // the operand may be away
  needs_gpu,  // the operand must be on the GPU
};

class KernelWays {
 public:
  struct Key {
    std::uintptr_t kernel;  // the kernel's CUfunction or CUkernel
    std::uint32_t word;     // the offset of the word in the kernel's parameters
    auto operator<=>(const Key&) const = default;
  };
  static constexpr std::size_t kMostKeys = std::size_t{1} << 14;

  // The way of an operand. Once kMostKeys keys are known, further keys need the GPU: an exchange costs
  // milliseconds, but a matrix product with an operand that is away may take seconds.
  Way way(Key key) const;
  // Returns true if the time of another launch would not change the way.
  bool decided(Key key) const;
  // A launch took the time `took` with `away` bytes of the operand away. The first launch of a kernel also
  // loads the kernel's code, and must not be reported.
  void ran_away(Key key, Nanoseconds took, Bytes away);
  // A launch took the time `took` with all `bytes` of the operand on the GPU.
  void ran_here(Key key, Nanoseconds took, Bytes bytes);

 private:
  struct Run {
    Nanoseconds took{};
    Bytes bytes;  // zero: there was no such run
  };
  struct Record {
    Way way = Way::untried;
    bool final = false;  // a matrix product is never tried twice with the operand away
    Run away;            // the last run that was slower than a streaming kernel
    Run here;            // the fastest run by byte
  };
  static double per_byte(const Run& run);
  static void decide(Record& record);
  Record* record_of(Key key);  // null if there are too many keys

  std::map<Key, Record> records_;
};

}  // namespace sharedgpu
