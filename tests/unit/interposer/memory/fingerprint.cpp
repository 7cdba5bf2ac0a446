// SPDX-License-Identifier: Apache-2.0
// Checks which contents the fingerprint distinguishes. bench/fingerprint compares the kernel with this
// computation on a GPU.
#include "interposer/memory/fingerprint.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "interposer/memory/fingerprint_field.h"
#include "interposer/memory/fingerprint_kernel.h"

using namespace sharedgpu;
using fingerprint::kPart;

namespace {

using Data = std::vector<std::byte>;

struct FilledMemory {
  explicit FilledMemory(Bytes size = {2 * kPart.count}) : data(size.count) {
    REQUIRE(fingerprint::draw(key.get()));
    std::mt19937_64 random(1);
    for (std::byte& each : data) each = static_cast<std::byte>(random());
  }
  Fingerprint taken() const { return fingerprint::of(*key, data.data(), {data.size()}); }
  void swap(std::size_t a, std::size_t b, std::size_t size) {
    std::swap_ranges(data.begin() + static_cast<std::ptrdiff_t>(a),
                     data.begin() + static_cast<std::ptrdiff_t>(a + size),
                     data.begin() + static_cast<std::ptrdiff_t>(b));
  }

  std::unique_ptr<fingerprint::Key> key = std::make_unique<fingerprint::Key>();
  Data data;
};

}  // namespace

TEST_CASE("equal contents have equal fingerprints", "[fingerprint]") {
  const FilledMemory memory;
  const Data copy = memory.data;
  CHECK(fingerprint::of(*memory.key, copy.data(), {copy.size()}) == memory.taken());
}

TEST_CASE("a change of any one bit is seen", "[fingerprint]") {
  FilledMemory memory;
  const Fingerprint before = memory.taken();
  std::mt19937_64 random(2);
  for (int i = 0; i < 200; ++i) {
    const std::size_t at = random() % memory.data.size();
    const auto bit = static_cast<std::byte>(1u << random() % 8);
    memory.data[at] ^= bit;
    const Fingerprint after = memory.taken();
    CHECK(after.hash[0] != before.hash[0]);
    CHECK(after.hash[1] != before.hash[1]);
    memory.data[at] ^= bit;
  }
  CHECK(memory.taken() == before);
}

TEST_CASE("contents that have changed places are seen", "[fingerprint]") {
  FilledMemory memory;
  const Fingerprint before = memory.taken();
  // Swaps the first two units of each size: a word, a pair, a vector, one warp's part of a row, a row, a
  // tile, a part.
  for (const std::size_t size : {4u, 8u, 16u, 512u, 4096u, 32768u, 131072u}) {
    memory.swap(0, size, size);
    CHECK(memory.taken().hash[0] != before.hash[0]);
    CHECK(memory.taken().hash[1] != before.hash[1]);
    memory.swap(0, size, size);
  }
  CHECK(memory.taken() == before);
}

TEST_CASE("memory that is filled with one word is uniform", "[fingerprint]") {
  FilledMemory memory;
  CHECK_FALSE(memory.taken().uniform);
  for (const std::uint32_t word : {0u, 0x3f800000u, ~0u}) {
    for (std::size_t at = 0; at < memory.data.size(); at += sizeof word)
      std::memcpy(&memory.data[at], &word, sizeof word);
    CHECK(memory.taken().uniform);
    CHECK(memory.taken().value == word);
    for (const std::size_t at : {std::size_t{0}, kPart.count - 1, kPart.count, memory.data.size() - 1}) {
      memory.data[at] ^= std::byte{0x80};
      CHECK_FALSE(memory.taken().uniform);
      memory.data[at] ^= std::byte{0x80};
    }
  }
}

TEST_CASE("memory that ends in the middle of a part has a fingerprint, too", "[fingerprint]") {
  FilledMemory memory(kPart + kibibytes(4));
  const Fingerprint before = memory.taken();
  memory.data.back() ^= std::byte{1};
  CHECK(memory.taken().hash != before.hash);
}

TEST_CASE("another key gives another hash", "[fingerprint]") {
  const FilledMemory one;
  const FilledMemory other;
  REQUIRE(one.data == other.data);
  CHECK(one.taken().hash[0] != other.taken().hash[0]);
  CHECK(one.taken().hash[1] != other.taken().hash[1]);
}

TEST_CASE("a part that the kernel has not written is noticed", "[fingerprint]") {
  const FilledMemory memory;
  std::vector<fingerprint::Part> parts;
  for (std::uint64_t i = 0; i < 2; ++i)
    parts.push_back(fingerprint::look(memory.key->kernel, memory.data.data(), {memory.data.size()}, i, 8));
  CHECK(fingerprint::combine(*memory.key, parts.data(), {memory.data.size()}, 8) == memory.taken());
  parts[1].stamp = 7;
  CHECK_FALSE(fingerprint::combine(*memory.key, parts.data(), {memory.data.size()}, 8));
}

TEST_CASE("arithmetic modulo 2^61 - 1", "[fingerprint]") {
  using fingerprint::canonical;
  using fingerprint::fold;
  using fingerprint::kPrime;
  using fingerprint::reduce;
  using fingerprint::Wide;
  std::mt19937_64 random(3);
  for (int i = 0; i < 1000; ++i) {
    const Wide x = (Wide{random() >> 4} << 64) | random();
    CHECK(canonical(reduce(x)) == static_cast<std::uint64_t>(x % kPrime));
  }
  const Wide largest = (Wide{1} << 124) - 1;
  CHECK(canonical(reduce(largest)) == static_cast<std::uint64_t>(largest % kPrime));
  CHECK(canonical(fold(kPrime)) == 0);
  CHECK(canonical(fold(2 * kPrime)) == 0);
}

TEST_CASE("the kernel's text has its name and the key's size", "[fingerprint]") {
  const std::string text = fingerprint::kKernelPtx;
  CHECK(text.find(std::string(".entry ") + fingerprint::kKernelName + "(") != std::string::npos);
  CHECK(text.find("_key[" + std::to_string(sizeof(fingerprint::KernelKey)) + "]") != std::string::npos);
}
