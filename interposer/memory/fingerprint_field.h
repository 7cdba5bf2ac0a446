// SPDX-License-Identifier: Apache-2.0
// Arithmetic modulo p = 2^61 - 1. Residues are numbers below 2^62, and may be larger than p. Only canonical()
// returns a number below p.
#pragma once

#include <cstdint>

namespace sharedgpu::fingerprint {

__extension__ using Wide = unsigned __int128;

inline constexpr std::uint64_t kPrime = (1ull << 61) - 1;

constexpr std::uint64_t fold(std::uint64_t x) { return (x & kPrime) + (x >> 61); }

// Requires x < 2^124.
constexpr std::uint64_t reduce(Wide x) {
  const auto low = static_cast<std::uint64_t>(x) & kPrime;
  const auto middle = static_cast<std::uint64_t>(x >> 61) & kPrime;
  return fold(low + middle + static_cast<std::uint64_t>(x >> 122));
}

constexpr std::uint64_t times(std::uint64_t x, std::uint64_t key) { return reduce(Wide{x} * key); }

constexpr std::uint64_t canonical(std::uint64_t x) { return x >= kPrime ? x - kPrime : x; }

}  // namespace sharedgpu::fingerprint
