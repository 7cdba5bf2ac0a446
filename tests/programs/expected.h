// SPDX-License-Identifier: Apache-2.0
// The contents of buffers that the pattern kernels change, as functions of their first contents.
#pragma once

#include <cstdint>

#include "tests/programs/pattern.h"

namespace sharedgpu::programs {

// The words that a buffer must hold: each word is a linear function of its first value.
class Expected {
 public:
  // `words`: the size of the buffer. `with_sum`: also compute the sum of all words, which only operands of
  // products need.
  Expected(std::uint64_t seed, std::uint64_t words, bool with_sum) : seed_(seed), words_(words) {
    for (std::uint64_t i = 0; with_sum && i < words; ++i) sum_ += pattern::fill(seed, i);
  }
  void step(std::uint64_t iteration) {
    history_.add(iteration);
    sum_ = sum_ * pattern::kFactor + words_ * pattern::addend(iteration);
  }
  void product(std::uint64_t iteration, const Expected& operand) {
    step(iteration);
    history_.sum += operand.sum_;
    sum_ += words_ * operand.sum_;
  }
  std::uint64_t operator()(std::uint64_t index) const { return history_(pattern::fill(seed_, index)); }

 private:
  std::uint64_t seed_;
  std::uint64_t words_;
  std::uint64_t sum_ = 0;
  pattern::History history_;
};

}  // namespace sharedgpu::programs
