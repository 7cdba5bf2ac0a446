// SPDX-License-Identifier: Apache-2.0
// Computes on the CPU what the kernel computes. Tests compare the kernel with this code.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "interposer/memory/fingerprint.h"
#include "interposer/memory/fingerprint_field.h"

namespace sharedgpu::fingerprint {
namespace {

// The NH values of all blocks of a tile, under one key.
using Values = std::array<std::uint64_t, kThreads>;

// Adds the vectors of row `number` to the NH values of the tile's blocks. The compiler can vectorize these
// loops, so tests with much memory stay fast.
void add_row(const KernelKey& key, const std::byte* row, unsigned number, std::array<Values, kPasses>& tile) {
  std::array<std::uint32_t, 4 * kThreads> words;
  std::memcpy(words.data(), row, sizeof words);
  for (unsigned pass = 0; pass < kPasses; ++pass) {
    const std::uint32_t* const k = &key.words[number * 4 + 2 * pass];
    const std::uint32_t k0 = k[0];
    const std::uint32_t k1 = k[1];
    const std::uint32_t k2 = k[2];
    const std::uint32_t k3 = k[3];
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      const std::uint32_t* const word = &words[thread * 4];
      const std::uint64_t x = word[0] + k0;  // modulo 2^32
      const std::uint64_t y = word[2] + k2;
      tile[pass][thread] += x * std::uint32_t(word[1] + k1) + y * std::uint32_t(word[3] + k3);
    }
  }
}

bool differs(const std::byte* data, std::size_t size, std::uint32_t from) {
  std::uint32_t bits = 0;
  for (std::size_t at = 0; at < size; at += sizeof bits) {
    std::uint32_t word = 0;
    std::memcpy(&word, data + at, sizeof word);
    bits |= word ^ from;
  }
  return bits != 0;
}

}  // namespace

Part look(const KernelKey& key, const std::byte* range, Bytes size, std::uint64_t index,
          std::uint64_t stamp) {
  Part part{{0, 0}, 0, 0, stamp};
  std::memcpy(&part.first, range, sizeof part.first);
  const std::byte* data = range + index * kPart.count;
  const std::size_t there = std::min(kPart.count, size.count - index * kPart.count);
  part.differs = differs(data, there, part.first) ? 1 : 0;
  std::vector<std::byte> padded;
  if (there < kPart.count) {
    padded.assign(data, data + there);
    padded.resize(kPart.count);
    data = padded.data();
  }
  Wide sums[kThreads][2] = {};
  for (unsigned tile = 0; tile < kTiles; ++tile) {
    std::array<Values, kPasses> values{};
    for (unsigned row = 0; row < kVectors; ++row) add_row(key, data + tile * kTile + row * kRow, row, values);
    for (unsigned pass = 0; pass < kPasses; ++pass)
      for (unsigned thread = 0; thread < kThreads; ++thread)
        sums[thread][pass / 2] += Wide{values[pass][thread]} * key.tiles[tile][pass];
  }
  for (unsigned half = 0; half < 2; ++half) {
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      const std::uint64_t in_lane = times(reduce(sums[thread][half]), key.lanes[thread % kLanes][half]);
      const std::uint64_t in_warp = times(in_lane, key.warps[thread / kLanes][half]);
      part.hash[half] = canonical(fold(part.hash[half] + in_warp));
    }
  }
  return part;
}

}  // namespace sharedgpu::fingerprint
