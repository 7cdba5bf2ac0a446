// SPDX-License-Identifier: Apache-2.0
// Makes each call to the driver fail once, and then each two successive calls. No byte may ever be lost, the
// counted memory must always agree with the device, and a retry must succeed.
#include <catch2/catch.hpp>

#include "tests/unit/interposer/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

constexpr unsigned kFirstSeed = 1;
constexpr unsigned kSmallSeed = 2;
constexpr unsigned kLaterSeed = 3;
constexpr Bytes kFirstSize = kibibytes(128 * 6);  // more handles than can be copied at once
constexpr Bytes kSmall = kibibytes(3);
constexpr Bytes kLater = kibibytes(130);

void check_books(const World& t) {
  const MemoryUse use = t.memory.use();
  Bytes swappable;
  Bytes mapped;
  for (const Handle& handle : t.memory.handles()) {
    REQUIRE_FALSE(handle.busy);
    REQUIRE(handle.counted == handle.mapped);
    swappable += handle.size;
    if (handle.mapped) mapped += handle.size;
  }
  REQUIRE(use.swappable == swappable);
  REQUIRE(use.resident == mapped);
  REQUIRE(t.device.physical() == mapped);
  REQUIRE(t.device.misuse() == "");
}

// Repeats `step` until it succeeds: at most three times, since at most two calls fail.
template <class Step>
void insist(World& t, Step step) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    const bool done = step();
    check_books(t);
    if (done) return;
    REQUIRE(t.device.has_failed());
  }
  FAIL("a step did not succeed although the driver did");
}

CUdeviceptr allocate(World& t, Bytes size, unsigned seed) {
  CUdeviceptr address = 0;
  insist(t, [&] { return t.memory.allocate(&address, size) == CUDA_SUCCESS; });
  fill(address, size, seed);
  return address;
}

void free(World& t, CUdeviceptr address) {
  insist(t, [&] { return t.memory.free(address) == CUDA_SUCCESS; });
}

void swap_out_and_in(World& t, Bytes floor) {
  t.memory.set_allowed(floor);
  insist(t, [&] { return t.memory.evict(); });
  t.memory.set_allowed(gibibytes(1));
  insist(t, [&] { return t.memory.restore(); });
}

// Runs a program from start to end, and makes call number `fail` and the `more` calls after it fail. Returns
// true if call number `fail` was made.
bool live(unsigned fail, unsigned more) {
  World t;
  t.device.fail_call(fail, CUDA_ERROR_UNKNOWN, more);
  const CUdeviceptr first = allocate(t, kFirstSize, kFirstSeed);
  const CUdeviceptr small = allocate(t, kSmall, kSmallSeed);
  swap_out_and_in(t, {});
  REQUIRE(holds(first, kFirstSize, kFirstSeed));
  REQUIRE(holds(small, kSmall, kSmallSeed));
  const CUdeviceptr later = allocate(t, kLater, kLaterSeed);
  swap_out_and_in(t, kibibytes(400));
  REQUIRE(holds(first, kFirstSize, kFirstSeed));
  REQUIRE(holds(small, kSmall, kSmallSeed));
  REQUIRE(holds(later, kLater, kLaterSeed));
  t.memory.set_allowed({});
  insist(t, [&] { return t.memory.evict(); });
  free(t, later);
  t.memory.set_allowed(gibibytes(1));
  insist(t, [&] { return t.memory.restore(); });
  REQUIRE(holds(first, kFirstSize, kFirstSeed));
  free(t, first);
  free(t, small);
  return t.device.has_failed();
}

}  // namespace

TEST_CASE("no failure of the driver loses a byte", "[failure]") {
  const unsigned more = GENERATE(0u, 1u);
  unsigned n = 1;
  while (live(n, more)) ++n;
  INFO(n << " calls");
  CHECK(n > 100);
}

namespace {

// Lets calls fail as the plan for their kind says.
struct Failing final : FakeDevice {
  using FakeDevice::FakeDevice;
  CUresult wait(Lane lane) override { return fails(waits) ? CUDA_ERROR_UNKNOWN : FakeDevice::wait(lane); }
  CUresult unmap(CUdeviceptr address, Bytes size) override {
    return fails(unmaps) ? CUDA_ERROR_UNKNOWN : FakeDevice::unmap(address, size);
  }
  CUresult release(Physical physical) override {
    return fails(releases) ? CUDA_ERROR_UNKNOWN : FakeDevice::release(physical);
  }
  CUresult allow_access(CUdeviceptr address, Bytes size) override {
    return fails(accesses) ? CUDA_ERROR_UNKNOWN : FakeDevice::allow_access(address, size);
  }
  CUresult copy_out(Lane lane, std::byte* host, CUdeviceptr from, Bytes size) override {
    return fails(copies_out) ? CUDA_ERROR_UNKNOWN : FakeDevice::copy_out(lane, host, from, size);
  }
  CUresult copy_in(Lane lane, CUdeviceptr to, const std::byte* host, Bytes size) override {
    return fails(copies_in) ? CUDA_ERROR_UNKNOWN : FakeDevice::copy_in(lane, to, host, size);
  }
  // The first `after` calls succeed, then `count` calls fail.
  struct Plan {
    unsigned count = 0;
    unsigned after = 0;
  };
  static bool fails(Plan& plan) {
    if (plan.count == 0 || (plan.after != 0 && plan.after-- != 0)) return false;
    --plan.count;
    return true;
  }
  Plan waits, unmaps, releases, accesses, copies_out, copies_in;
};

// One block of two handles with contents. The device returns no fingerprints, so an eviction copies all
// contents.
struct FailingWorld : WorldOn<Failing> {
  static constexpr Bytes kHandle = kibibytes(128);
  static constexpr Bytes kBlock = kibibytes(256);

  FailingWorld() {
    device.set_blind(true);
    block = added(1);
  }
  CUdeviceptr added(unsigned seed) {
    CUdeviceptr address = 0;
    REQUIRE(memory.allocate(&address, kBlock) == CUDA_SUCCESS);
    fill(address, kBlock, seed);
    return address;
  }
  bool evict(Bytes allowed = {}) {
    memory.set_allowed(allowed);
    return memory.evict();
  }
  bool restore(Bytes allowed = gibibytes(1)) {
    memory.set_allowed(allowed);
    return memory.restore();
  }
  bool resident(Bytes size) {
    return memory.use().resident == size && device.physical() == size && device.misuse().empty();
  }

  CUdeviceptr block = 0;
};

}  // namespace

TEST_CASE("an eviction that fails once is reported as stuck, and the handles that have left stay evicted",
          "[failure]") {
  FailingWorld t;
  Bytes left = t.kHandle;
  SECTION("the first copy") {
    t.device.copies_out = {1};
    left = t.kBlock;
  }
  SECTION("the second copy") { t.device.copies_out = {1, 1}; }
  SECTION("the wait for a look") {
    t.device.waits = {1};
    left = t.kBlock;
  }
  SECTION("the wait for the first") { t.device.waits = {1, 1}; }
  SECTION("the wait for the second") { t.device.waits = {1, 2}; }
  SECTION("the first unmap") { t.device.unmaps = {1}; }
  SECTION("the second unmap") { t.device.unmaps = {1, 1}; }
  CHECK_FALSE(t.evict());
  CHECK(t.books.stuck);
  CHECK(t.resident(left));
  CHECK(t.memory.moved().evicted == t.kBlock - left);
  CHECK(t.memory.last_eviction().copied == t.kBlock - left);
  CHECK(t.evict());
  CHECK_FALSE(t.books.stuck);
  CHECK(t.resident({}));
  REQUIRE(t.restore());
  CHECK(holds(t.block, t.kBlock, 1));
}

TEST_CASE("a restore that fails once leaves the failed handles evicted", "[failure]") {
  FailingWorld t;
  REQUIRE(t.evict());
  Bytes back = t.kHandle;
  SECTION("the first copy") {
    t.device.copies_in = {1};
    back = {};
  }
  SECTION("the second copy") { t.device.copies_in = {1, 1}; }
  SECTION("the wait for the first") { t.device.waits = {1}; }
  SECTION("the wait for the second") { t.device.waits = {1, 1}; }
  SECTION("the first access") {
    t.device.accesses = {1};
    back = {};
  }
  SECTION("the second access") { t.device.accesses = {1, 1}; }
  CHECK_FALSE(t.restore());
  CHECK(t.resident(back));
  CHECK(t.memory.moved().restored == back);
  CHECK(t.books.last.resident == back);
  REQUIRE(t.restore());
  CHECK(t.memory.moved().restored == t.kBlock);
  CHECK(holds(t.block, t.kBlock, 1));
}

TEST_CASE("host memory that a failed eviction or restore frees is freed once", "[failure]") {
  const unsigned failing = GENERATE(0u, 1u, 2u);
  FailingWorld t;
  t.device.copies_out = {failing == 0 ? 1u : 0u, 1};
  t.device.waits = {failing == 1 ? 1u : 0u, 1};
  t.device.unmaps = {failing == 2 ? 1u : 0u};
  CHECK_FALSE(t.evict());
  REQUIRE(t.evict());
  // A failed restore frees no host memory twice, and no host memory of contents that are resident.
  for (unsigned lane = 0; lane < 2 * Lane::kCount; ++lane) {
    t.device.copies_in = {1, lane % 2};
    CHECK_FALSE(t.restore());
    t.device.waits = {1};
    CHECK_FALSE(t.restore());
    REQUIRE(t.evict());
  }
  t.memory.set_allowed(t.kBlock);
  const CUdeviceptr other = t.added(2);
  REQUIRE(t.evict());
  REQUIRE(t.restore());
  CHECK(holds(t.block, t.kBlock, 1));
  CHECK(holds(other, t.kBlock, 2));
}

TEST_CASE("a copy that may be under way keeps its room and its memory until it is waited for", "[failure]") {
  FailingWorld t;
  SECTION("out") {
    t.device.copies_out = {1, 1};
    t.device.waits = {2, 1};  // the wait for a copy fails, not the wait for fingerprints
    CHECK_FALSE(t.evict());
    CHECK(t.resident(t.kBlock));
    t.device.waits = {1};
    CHECK_FALSE(t.evict());
    CHECK(t.resident(t.kBlock));
    REQUIRE(t.evict());
  }
  SECTION("in") {
    REQUIRE(t.evict());
    t.device.waits = {4};
    CHECK_FALSE(t.restore());
    CHECK(t.resident(t.kBlock));
    t.device.waits = {1};
    CHECK_FALSE(t.restore());
    if (GENERATE(false, true)) {  // no memory on the GPU needs a copy
      const Bytes copied = t.device.copied_out();
      t.device.set_blind(false);
      REQUIRE(t.evict());
      CHECK(t.device.copied_out() == copied);
      CHECK(t.device.looks() == 0);
    }
  }
  REQUIRE(t.restore());
  CHECK(t.resident(t.kBlock));
  CHECK(holds(t.block, t.kBlock, 1));
}

TEST_CASE("the reference to what is mapped is given back, at the third attempt if need be", "[failure]") {
  FailingWorld t;
  REQUIRE(t.evict());
  t.device.releases = {2};
  REQUIRE(t.restore());
  REQUIRE(t.evict());
  CHECK(t.resident({}));
}

TEST_CASE("an allocation that fails at its second handle leaves no trace", "[failure]") {
  FailingWorld t;
  CUdeviceptr address = 0;
  t.device.accesses = {1, 1};
  CHECK(t.memory.allocate(&address, t.kBlock) == CUDA_ERROR_UNKNOWN);
  CHECK(t.memory.use().swappable == t.kBlock);
  CHECK(t.books.last.swappable == t.kBlock);
  CHECK(t.resident(t.kBlock));
  CHECK(t.device.reserved() == t.kBlock);
  CHECK(t.memory.handles().size() == 2);
}

TEST_CASE("a free that fails at its second handle may be tried again", "[failure]") {
  FailingWorld t;
  t.device.unmaps = {1, 1};
  CHECK(t.memory.free(t.block) == CUDA_ERROR_UNKNOWN);
  CHECK(t.memory.find(t.block));
  CHECK(t.memory.use().swappable == t.kBlock);
  CHECK(t.resident(t.kHandle));
  CHECK(t.memory.free(t.block) == CUDA_SUCCESS);
  CHECK(t.memory.use().footprint() == Bytes{});
  CHECK(t.resident({}));
}

TEST_CASE("a free of pinned memory that fails at its third handle keeps this handle pinned", "[failure]") {
  FailingWorld t;
  CUdeviceptr address = 0;
  const Bytes size{3 * t.kHandle.count};
  REQUIRE(t.memory.allocate(&address, size) == CUDA_SUCCESS);
  REQUIRE(t.memory.settle(address, size) == CUDA_SUCCESS);
  t.device.unmaps = {1, 2};
  CHECK(t.memory.free(address) == CUDA_ERROR_UNKNOWN);
  CHECK(t.memory.use().pinned == t.kHandle);
  CHECK(t.memory.use().swappable == t.kBlock + t.kHandle + t.kHandle);
  CHECK(t.memory.use().resident == t.kBlock);
  CHECK(t.device.physical() == t.kBlock + t.kHandle);
  CHECK(t.memory.free(address) == CUDA_SUCCESS);
  CHECK(t.memory.use().footprint() == t.kBlock);
}
