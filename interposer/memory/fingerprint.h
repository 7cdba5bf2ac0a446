// SPDX-License-Identifier: Apache-2.0
// The fingerprint of device memory: a keyed hash of 122 bits, and a flag that tells whether all 32-bit words
// are equal. This file defines the fingerprint. A CUDA kernel (fingerprint_kernel.h) computes it at memory
// bandwidth.
//
// Memory is cut into parts of 128 KiB, a part into 4 tiles, a tile into 256 blocks. A block is 8 vectors of
// 16 bytes that lie 4 KiB apart; one thread of the kernel reads a block at a time. The hash has three steps:
//
//   a block to 4 x 64 bits   NH, the hash of UMAC (RFC 4418): the sum of (x + k)(y + k') over the pairs of
//                            words (x, y), modulo 2^64. It is computed with four keys: each key is the
//                            previous one shifted by two words
//   a part to 2 x 61 bits    two sums over all blocks of the part, modulo p = 2^61 - 1: one of the first two
//                            NH values of each block, one of the last two. Each value is multiplied by a key,
//                            which is the product of a tile key, a lane key and a warp key
//   all to 2 x 61 bits       for each of the two sums: the sum over all parts, modulo p, of part times key
//
// All keys are random. Each process draws its own keys, once for each GPU, and no other process knows them.
// For any two different contents of the same size, the probability of equal hashes is below 2^-100. Proof:
//
// - NH: for two different blocks, each of the four values has any given difference with probability 2^-32,
//   and all four jointly with 2^-128 (Black et al., UMAC, CRYPTO '99; Krovetz, VHASH, for differences other
//   than 0). Two 64-bit numbers are equal modulo p only if their difference is one of 17 multiples of p. Each
//   of the two halves of the hash is computed from two of the four values. In a given half, both values of a
//   block become equal modulo p with probability at most (17 / 2^32)^2 < 2^-55.
// - The difference between the sums of two contents is a polynomial of degree 4 in keys of 57 bits. Each key
//   makes an existing difference vanish with probability at most 2^-57, all four together 2^-55.
// - So the hashes of two different contents have a given half in common with probability at most 2^-54. The
//   keys of the sums differ between the halves and are independent. So both halves are equal with probability
//   at most 2^-108.
//
// A process that knows the keys could construct different contents with equal hashes, but only the process
// that owns the contents knows the keys.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu {

struct Fingerprint {
  std::array<std::uint64_t, 2> hash{};
  bool uniform = false;     // all 32-bit words are equal to `value`
  std::uint32_t value = 0;  // the first word
  bool operator==(const Fingerprint&) const = default;
};

namespace fingerprint {

inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kLanes = 32;
inline constexpr unsigned kVectors = 8;
inline constexpr unsigned kTiles = 4;
inline constexpr unsigned kPasses = 4;
inline constexpr std::size_t kVector = 16;
inline constexpr std::size_t kRow = kThreads * kVector;
inline constexpr std::size_t kTile = kVectors * kRow;
inline constexpr Bytes kPart{kTiles * kTile};
inline constexpr unsigned kMostParts = 1024;
// Larger ranges have no fingerprint.
inline constexpr Bytes kLargest{kMostParts * kPart.count};

// The part of the key that is passed to the kernel, as its last parameter.
struct KernelKey {
  std::array<std::uint32_t, kVectors * 4 + 2 * (kPasses - 1)> words;
  std::uint32_t unused[2];
  std::uint64_t tiles[kTiles][kPasses];
  std::uint64_t lanes[kLanes][2];
  std::uint64_t warps[kThreads / kLanes][2];
};
static_assert(sizeof(KernelKey) == 928);
static_assert(offsetof(KernelKey, tiles) == 160);
static_assert(offsetof(KernelKey, lanes) == 288);
static_assert(offsetof(KernelKey, warps) == 800);

struct Key {
  KernelKey kernel;
  std::uint64_t parts[kMostParts][2];
};

// The kernel's result for a part.
struct Part {
  std::uint64_t hash[2];
  std::uint32_t first;    // the first word of the whole range
  std::uint32_t differs;  // 0 if all words of the part are equal to `first`
  std::uint64_t stamp;    // the number of the launch; the kernel writes it, which proves that the kernel has
                          // run
};
static_assert(sizeof(Part) == 32);

constexpr std::uint64_t parts_in(Bytes size) { return (size.count + kPart.count - 1) / kPart.count; }

// Draws a key. Returns false if the system has no random numbers.
bool draw(Key* key);

// Combines the kernel's results into the range's fingerprint; nullopt if the kernel has not run on all parts
// of the range.
std::optional<Fingerprint> combine(const Key& key, const Part* parts, Bytes size, std::uint64_t stamp);

// Computes on the CPU the kernel's result for part `index` of the range. If the last part is shorter than a
// whole part, pads it with zeros; the kernel does not support such parts. For tests.
Part look(const KernelKey& key, const std::byte* range, Bytes size, std::uint64_t index, std::uint64_t stamp);
// Computes the whole fingerprint on the CPU. For tests.
inline Fingerprint of(const Key& key, const std::byte* range, Bytes size) {
  std::vector<Part> parts;
  for (std::uint64_t i = 0; i < parts_in(size); ++i) parts.push_back(look(key.kernel, range, size, i, 1));
  return *combine(key, parts.data(), size, 1);
}

}  // namespace fingerprint
}  // namespace sharedgpu
