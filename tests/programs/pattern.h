// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the test kernels, in C++. The programs verify their memory with it, and the simulated GPU
// runs it. The PTX in kernels_ptx.h does the same on a real GPU.
#pragma once

#include <cstdint>

namespace sharedgpu::pattern {

// The word at `index` of a freshly filled buffer (splitmix64's finalizer).
constexpr std::uint64_t fill(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed + index * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

inline constexpr std::uint64_t kFactor = 6364136223846793005ull;
constexpr std::uint64_t addend(std::uint64_t iteration) { return iteration * 2 + 1; }

// A word after one more iteration.
constexpr std::uint64_t step(std::uint64_t word, std::uint64_t iteration) {
  return word * kFactor + addend(iteration);
}

// The effect of the iterations so far on a word, as one linear function.
struct History {
  std::uint64_t factor = 1;
  std::uint64_t sum = 0;
  constexpr void add(std::uint64_t iteration) {
    factor *= kFactor;
    sum = sum * kFactor + addend(iteration);
  }
  constexpr std::uint64_t operator()(std::uint64_t word) const { return word * factor + sum; }
};

// A word after one more iteration of the product; `operand` is the sum of the operand's words.
constexpr std::uint64_t product(std::uint64_t word, std::uint64_t iteration, std::uint64_t operand) {
  return step(word, iteration) + operand;
}
// The number of thread blocks in a launch of the product. Each block reads the whole operand, as in a product
// of matrices.
inline constexpr unsigned kProductBlocks = 48;

// The contribution of a word to a buffer's checksum. The checksum is the sum of all contributions, modulo
// 2^64.
constexpr std::uint64_t weigh(std::uint64_t word, std::uint64_t index) { return word * (index * 2 + 1); }

}  // namespace sharedgpu::pattern
