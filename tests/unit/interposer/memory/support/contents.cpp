// SPDX-License-Identifier: Apache-2.0
// Fills and checks memory in words, since sanitizers make each access slow. This code is not in the header,
// since the tests that include the header are compiled without optimization.
#include <algorithm>
#include <cstring>

#include "tests/unit/interposer/memory/support/fixtures.h"

namespace sharedgpu::test {
namespace {

std::uint64_t word(unsigned seed, std::size_t index) {
  return (seed * 131ull + index + 1) * 0x9e3779b97f4a7c15ull;
}

// Calls `each` for each word of the block, until it returns false.
template <class Each>
bool all_words(CUdeviceptr address, Bytes size, unsigned seed, Each each) {
  for (std::size_t at = 0, index = 0; at < size.count; at += sizeof(std::uint64_t), ++index) {
    const std::uint64_t expected = word(seed, index);
    if (!each(bytes_at(address) + at, expected, std::min(sizeof expected, std::size_t{size.count} - at)))
      return false;
  }
  return true;
}

}  // namespace

void fill(CUdeviceptr address, Bytes size, unsigned seed) {
  all_words(address, size, seed, [](std::byte* to, const std::uint64_t& from, std::size_t count) {
    std::memcpy(to, &from, count);
    return true;
  });
}

bool holds(CUdeviceptr address, Bytes size, unsigned seed) {
  return all_words(address, size, seed,
                   [](const std::byte* there, const std::uint64_t& expected, std::size_t count) {
                     return std::memcmp(there, &expected, count) == 0;
                   });
}

}  // namespace sharedgpu::test
