// SPDX-License-Identifier: Apache-2.0
// Memory that has not changed since its last eviction is not copied again. Memory in which all words are
// equal is not copied at all.
#include <catch2/catch.hpp>

#include "tests/unit/interposer/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

constexpr Bytes kBlock = kibibytes(256);  // two handles

// Three blocks with contents.
struct Tenant : World {
  explicit Tenant(const SwapOptions& options = small_sizes()) : World(gibibytes(1), options) {
    for (unsigned i = 0; i < 3; ++i) {
      CUdeviceptr address = 0;
      REQUIRE(memory.allocate(&address, kBlock) == CUDA_SUCCESS);
      blocks.push_back(address);
      write(i);
    }
  }
  void write(unsigned i) { fill(blocks[i], kBlock, seeds[i] = ++writes); }
  void set_all(unsigned i, std::uint32_t word) {
    std::fill_n(reinterpret_cast<std::uint32_t*>(blocks[i]), kBlock.count / sizeof word, word);
  }
  bool intact(unsigned i) const { return holds(blocks[i], kBlock, seeds[i]); }
  bool all_intact() const { return intact(0) && intact(1) && intact(2); }

  Eviction evict(Bytes allowed = {}) {
    memory.set_allowed(allowed);
    REQUIRE(memory.evict());
    return memory.last_eviction();
  }
  void restore() {
    memory.set_allowed(footprint);
    REQUIRE(memory.restore());
    REQUIRE(device.misuse() == "");
  }

  const Bytes footprint{3 * kBlock.count};
  std::vector<CUdeviceptr> blocks;
  unsigned seeds[3] = {};
  unsigned writes = 0;
};

}  // namespace

TEST_CASE("unchanged memory is evicted without a copy", "[unchanged]") {
  Tenant t;
  CHECK(t.evict().copied == t.footprint);
  CHECK(t.memory.moved() == Traffic{.evicted = t.footprint, .restored = {}});
  t.restore();
  CHECK(t.memory.moved() == Traffic{.evicted = t.footprint, .restored = t.footprint});
  const Bytes host = t.memory.use().host;
  for (int i = 0; i < 3; ++i) {
    const Bytes before = t.device.copied_out();
    const Eviction last = t.evict();
    CHECK(last.copied == Bytes{});
    CHECK(last.unchanged == t.footprint);
    CHECK(t.device.copied_out() == before);
    CHECK(t.device.physical() == Bytes{});
    t.restore();
    CHECK(t.all_intact());
  }
  CHECK(t.memory.use().host == host);
}

TEST_CASE("changed memory is copied over its earlier copy", "[unchanged]") {
  Tenant t;
  t.evict();
  t.restore();
  const Bytes host = t.memory.use().host;
  t.budget.left = {};
  t.write(1);
  const Eviction last = t.evict();
  CHECK(last.copied == kBlock);
  CHECK(last.unchanged == t.footprint - kBlock);
  CHECK(t.memory.use().host == host);
  t.restore();
  CHECK(t.all_intact());
}

TEST_CASE("evicted memory that is filled with one word takes no host memory", "[unchanged]") {
  Tenant t;
  t.set_all(0, 0);
  t.set_all(2, 0xdeadbeef);
  const Eviction last = t.evict();
  CHECK(last.copied == kBlock);
  CHECK(last.uniform == t.footprint - kBlock);
  CHECK(t.memory.use().host < t.footprint);
  const Bytes before = t.device.copied_in();
  t.restore();
  CHECK(t.device.copied_in() == before + kBlock);
  CHECK(t.intact(1));
  const auto* const zeros = reinterpret_cast<const std::uint32_t*>(t.blocks[0]);
  const auto* const words = reinterpret_cast<const std::uint32_t*>(t.blocks[2]);
  CHECK(std::all_of(zeros, zeros + kBlock.count / 4, [](auto word) { return word == 0; }));
  CHECK(std::all_of(words, words + kBlock.count / 4, [](auto word) { return word == 0xdeadbeef; }));

  t.write(0);
  t.set_all(1, 7);
  t.write(2);
  CHECK(t.evict().copied == t.footprint - kBlock);
  t.restore();
  CHECK(t.intact(0));
  CHECK(t.intact(2));
}

TEST_CASE("if every block is filled with one word, all blocks are evicted without host memory",
          "[unchanged]") {
  Tenant t;
  for (unsigned i = 0; i < 3; ++i) t.set_all(i, i);
  t.budget.left = {};
  CHECK(t.evict().uniform == t.footprint);
  CHECK(t.memory.use().host == Bytes{});
  t.restore();
  CHECK(*reinterpret_cast<const std::uint32_t*>(t.blocks[2]) == 2);
}

TEST_CASE("a device without fingerprints copies all contents", "[unchanged]") {
  Tenant t;
  SECTION("never") { t.device.set_blind(true); }
  SECTION("from the second time on") {
    t.evict();
    t.restore();
    t.device.set_blind(true);
  }
  for (int i = 0; i < 2; ++i) {
    CHECK(t.evict().copied == t.footprint);
    t.restore();
    CHECK(t.all_intact());
  }
}

TEST_CASE("memory whose fingerprint fails is evicted with a copy", "[unchanged]") {
  Tenant t;
  t.evict();
  t.restore();
  t.write(2);
  const unsigned before = t.device.calls();
  SECTION("before it has begun") { t.device.fail_call(2); }
  SECTION("while it is waited for") { t.device.fail_call(3); }
  CHECK(t.evict().copied == t.footprint);
  CHECK(t.device.has_failed());
  CHECK(t.device.calls() > before);
  t.restore();
  CHECK(t.all_intact());
}

TEST_CASE("while a fingerprint may still be computed, nothing leaves", "[unchanged]") {
  Tenant t;
  t.device.fail_call(3, CUDA_ERROR_UNKNOWN,
                     1);  // two waits fail: for the fingerprint, and after this failure
  t.memory.set_allowed({});
  CHECK_FALSE(t.memory.evict());
  CHECK(t.books.stuck);
  CHECK(t.memory.use().resident == t.footprint);
  CHECK(t.evict().copied == t.footprint);
  t.restore();
  CHECK(t.all_intact());
}

TEST_CASE("clean copies make room for memory that has to be evicted", "[unchanged]") {
  Tenant t;
  t.evict();
  t.restore();
  CUdeviceptr more = 0;
  t.memory.set_allowed(t.footprint + kBlock);
  REQUIRE(t.memory.allocate(&more, kBlock) == CUDA_SUCCESS);
  fill(more, kBlock, 77);
  t.budget.left = {};
  CHECK_FALSE([&] {
    t.memory.set_allowed({});
    return t.memory.evict();
  }());
  // There is room for three blocks, and the first three blocks have been evicted.
  CHECK(t.memory.use().resident == kBlock);
  CHECK(t.memory.last_eviction().unchanged == t.footprint);
  t.memory.set_allowed(t.footprint + kBlock);
  REQUIRE(t.memory.restore());

  // This eviction evicts the new block, and drops clean copies to make room. The clean copies of memory that
  // would be evicted last are dropped first.
  t.memory.set_allowed(t.footprint);
  REQUIRE(t.memory.evict());
  CHECK(t.memory.last_eviction().unchanged == kBlock);
  REQUIRE(t.memory.free(t.blocks[0]) == CUDA_SUCCESS);
  REQUIRE(t.memory.free(t.blocks[1]) == CUDA_SUCCESS);
  t.memory.set_allowed({});
  REQUIRE(t.memory.evict());
  CHECK(t.memory.last_eviction().unchanged == kBlock);
  CHECK(t.memory.last_eviction().copied == kBlock);
  t.memory.set_allowed(t.footprint + kBlock);
  REQUIRE(t.memory.restore());
  CHECK(holds(more, kBlock, 77));
  CHECK(t.intact(2));
}

TEST_CASE("copies that the turn did not need do not outlive it", "[unchanged]") {
  Tenant t;
  t.evict();
  t.restore();
  CHECK(t.evict({2 * kBlock.count}).unchanged == kBlock);
  t.restore();
  CHECK(t.memory.use().host <=
        kibibytes(512));  // two slabs of 256 KiB: room for the first block, and slightly more
  const Eviction last = t.evict();
  CHECK(last.unchanged == kBlock);
  CHECK(last.copied == t.footprint - kBlock);
  t.restore();
  CHECK(t.all_intact());
}

TEST_CASE("the pool never grows for clean copies' sake", "[unchanged]") {
  Tenant t;
  CHECK(t.evict({2 * kBlock.count}).copied == kBlock);
  t.restore();
  const Bytes host = t.memory.use().host;
  // The first block becomes the most recently used block, so another block leaves.
  CUdeviceptr other = 0;
  REQUIRE(t.memory.free(t.blocks[0]) == CUDA_SUCCESS);
  REQUIRE(t.memory.allocate(&other, kBlock) == CUDA_SUCCESS);
  fill(other, kBlock, 88);
  CHECK(t.evict({2 * kBlock.count}).copied == kBlock);
  CHECK(t.memory.use().host == host);
  t.restore();
  CHECK(t.intact(1));
  CHECK(t.intact(2));
  CHECK(holds(other, kBlock, 88));
}

TEST_CASE("clean copies go when the job is short of memory, or no evictions are expected", "[unchanged]") {
  Tenant t;
  t.memory.prepare_host(t.footprint, 1);
  t.evict();
  t.restore();
  t.memory.tend();
  CHECK(t.memory.use().host >= t.footprint);
  SECTION("short") {
    t.budget.is_tight = true;
    t.memory.tend();
  }
  SECTION("not expected") {
    t.memory.prepare_host({}, 1);
    t.memory.tend();
  }
  CHECK(t.memory.use().host == Bytes{});
  CHECK(t.evict().copied == t.footprint);
  t.restore();
  CHECK(t.all_intact());
}

TEST_CASE("evicted memory returns when the job uses up its host memory, and stays on the GPU for a while",
          "[unchanged]") {
  Tenant t;
  t.memory.prepare_host(t.footprint, 1);
  CHECK_FALSE(t.memory.watch_host());
  t.evict();
  CHECK_FALSE(t.memory.watch_host());
  t.budget.is_tight = true;
  CHECK_FALSE(t.memory.watch_host());  // host memory is short, but the job has not used its margin
  t.budget.is_used_up = true;
  CHECK(t.memory.watch_host());
  CHECK(t.memory.use().host >= t.footprint);  // memory with contents cannot be released
  t.restore();
  CHECK_FALSE(t.memory.watch_host());
  CHECK(t.memory.use().host == Bytes{});

  t.budget.is_tight = t.budget.is_used_up = false;
  t.memory.set_allowed({});
  CHECK_FALSE(t.memory.evict());
  CHECK(t.memory.last_eviction().no_room);
  CHECK(t.memory.use().resident == t.footprint);
  for (int i = 0; i < 60; ++i) t.memory.tend();
  CHECK(t.evict().copied == t.footprint);
  CHECK_FALSE(t.memory.last_eviction().no_room);
  t.restore();
  CHECK(t.all_intact());
}

TEST_CASE("memory that changes in every turn gets fingerprints ever more rarely", "[unchanged]") {
  Tenant t;
  std::vector<unsigned> looks;
  for (int turn = 0; turn < 60; ++turn) {
    const unsigned before = t.device.looks();
    for (unsigned i = 0; i < 3; ++i) t.write(i);
    t.evict();
    t.restore();
    if (t.device.looks() != before) looks.push_back(static_cast<unsigned>(turn));
    REQUIRE(t.all_intact());
  }
  CHECK(looks == std::vector<unsigned>{0, 1, 2, 4, 5, 9, 10, 18, 19, 35, 36, 52, 53});

  // Once the memory stops changing, each eviction takes its fingerprint again.
  int turns = 0;
  while (t.evict().unchanged != t.footprint) {
    t.restore();
    REQUIRE(++turns < 20);
  }
  t.restore();
  CHECK(t.evict().unchanged == t.footprint);
}

TEST_CASE("a handle that gets no fingerprint keeps no clean copy", "[unchanged]") {
  Tenant t;
  bool rested = false;
  for (int turn = 0; turn < 6; ++turn) {
    for (unsigned i = 0; i < 3; ++i) t.write(i);
    t.evict();
    t.restore();
    for (const Handle& handle : t.memory.handles()) {
      rested |= handle.rests != 0;
      CHECK(handle.has_copy() == (handle.rests == 0 && handle.left));
      CHECK(handle.left.has_value() == handle.has_copy());
    }
  }
  CHECK(rested);
}

TEST_CASE("a handle that was evicted as one word keeps no clean copy of its earlier contents",
          "[unchanged]") {
  Tenant t;
  t.evict();
  t.restore();
  for (unsigned i = 0; i < 3; ++i) t.set_all(i, 5);
  CHECK(t.evict().uniform == t.footprint);
  t.restore();
  for (const Handle& handle : t.memory.handles()) CHECK_FALSE((handle.left || handle.has_copy()));
  // The host memory contains only contents that must be restored, and no clean copies.
  for (unsigned i = 0; i < 3; ++i) t.write(i);
  t.evict();
  t.budget.is_tight = t.budget.is_used_up = true;
  CHECK(t.memory.watch_host());
  t.restore();
  CHECK(t.all_intact());
}

TEST_CASE("clean copies stay while the job has enough host memory", "[unchanged]") {
  Tenant t;
  t.memory.prepare_host(t.footprint, 1);
  t.evict();
  t.restore();
  CHECK_FALSE(t.memory.watch_host());
  t.budget.is_used_up = true;  // with is_used_up but without is_tight, memory is not short
  CHECK_FALSE(t.memory.watch_host());
  CHECK(t.evict().unchanged == t.footprint);
}

TEST_CASE("memory that is pinned in place keeps no clean copy", "[unchanged]") {
  Tenant t;
  t.evict();
  t.restore();
  REQUIRE(t.memory.settle(t.blocks[0], kBlock) == CUDA_SUCCESS);
  unsigned copies = 0;
  for (const Handle& handle : t.memory.handles()) copies += handle.has_copy() ? 1 : 0;
  CHECK(copies == 4);
  CHECK(t.evict().unchanged == t.footprint - kBlock);
  t.restore();
  CHECK(t.all_intact());
}

TEST_CASE("freed memory gives back the host memory of its clean copy", "[unchanged]") {
  Tenant t;
  t.evict();
  t.restore();
  for (const CUdeviceptr block : t.blocks) REQUIRE(t.memory.free(block) == CUDA_SUCCESS);
  t.budget.is_tight = true;
  t.memory.tend();
  CHECK(t.memory.use().host == Bytes{});
  CHECK(t.device.pinned() == Bytes{});
}
