// SPDX-License-Identifier: Apache-2.0
// Managed memory of an oversized process: handles beyond the window stay on the host, and change places with
// others while the program uses them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "interposer/memory/managed_memory.h"
#include "interposer/memory/managed_mover.h"
#include "tests/unit/interposer/memory/support/fake_managed_device.h"
#include "tests/unit/interposer/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

constexpr Bytes kHandle = kibibytes(128);
constexpr Bytes kRoom{4 * kHandle.count};  // the window
constexpr Bytes kMost{6 * kHandle.count};  // the most memory beyond the window

struct ManagedOversized {
  FakeManagedDevice device;
  FakeBudget budget;
  FakeBooks books;
  ManagedMemory memory{device, budget, books, small_sizes()};
  AwayMemory& away = *memory.away_memory();

  ManagedOversized() {
    books.memory = &memory;
    books.limit = kRoom.count;
    books.beyond_limit = kMost.count;
    memory.set_allowed(kRoom);
  }
  CUdeviceptr added(Bytes size, unsigned seed) {
    CUdeviceptr address = 0;
    REQUIRE(memory.allocate(&address, size) == CUDA_SUCCESS);
    fill(address, size, seed);
    return address;
  }
  std::vector<CUdeviceptr> handles_that_are(bool away_from_gpu) const {
    std::vector<CUdeviceptr> found;
    for (const Handle& handle : memory.handles())
      if (handle.away == away_from_gpu) found.push_back(handle.address);
    return found;
  }
  std::vector<CUdeviceptr> all_away() const { return handles_that_are(true); }
  std::vector<CUdeviceptr> all_here() const { return handles_that_are(false); }
  bool exchange_all(std::size_t count) {
    std::vector<CUdeviceptr> out = all_here();
    std::vector<CUdeviceptr> in = all_away();
    out.resize(count);
    in.resize(count);
    return away.exchange(out, in);
  }
  // No more memory than the window may be on the GPU, and the job pays for each host page once.
  void check() const {
    const auto [use, beyond] = memory.reading();
    Bytes here;
    Bytes away_bytes;
    Bytes promised;
    Bytes held;
    for (const Handle& handle : memory.handles()) {
      REQUIRE_FALSE(handle.busy);
      REQUIRE(handle.away <= device.is_kept_on_host(handle.address));
      REQUIRE(handle.promised == (handle.away && !handle.host_pages));
      (handle.away ? away_bytes : here) += handle.size;
      if (handle.promised) promised += handle.size;
      if (handle.host_pages && !handle.away) held += handle.size;
    }
    REQUIRE(here <= use.swappable);
    REQUIRE(use.swappable <= kRoom);
    REQUIRE(here + away_bytes == use.swappable + beyond);
    REQUIRE(use.host == held);
    REQUIRE(budget.uncharged() == promised);
    REQUIRE(memory.uncharged() == promised);
    REQUIRE(device.misuse() == "");
  }
};

}  // namespace

TEST_CASE("managed memory beyond the window stays on the host", "[managed][away]") {
  ManagedOversized t;
  const CUdeviceptr first = t.added(kRoom, 1);
  CHECK_FALSE(t.device.is_kept_on_host(first));
  const CUdeviceptr second = t.added(Bytes{2 * kHandle.count}, 2);
  CHECK(t.books.windows == 1);
  CHECK(t.all_away() == std::vector<CUdeviceptr>{second, second + kHandle.count});
  CHECK(t.memory.use().resident == kRoom);
  CHECK(t.budget.uncharged() == Bytes{2 * kHandle.count});
  t.check();
  CUdeviceptr address = 0;
  CHECK(t.memory.allocate(&address, kMost) == CUDA_ERROR_OUT_OF_MEMORY);
  t.check();
  CHECK(holds(first, kRoom, 1));
  CHECK(holds(second, Bytes{2 * kHandle.count}, 2));
}

TEST_CASE("the host memory of managed memory that is away is promised until it is made", "[managed][away]") {
  ManagedOversized t;
  t.added(kRoom, 1);
  const CUdeviceptr second = t.added(Bytes{3 * kHandle.count}, 2);
  t.memory.tend_freed();
  CHECK(t.budget.uncharged() == Bytes{2 * kHandle.count});
  t.check();
  t.device.fail_call(2);  // the first call enters the context
  t.memory.tend_freed();
  CHECK(t.budget.uncharged() == Bytes{2 * kHandle.count});
  t.check();
  for (int i = 0; i < 3; ++i) t.memory.tend_freed();
  CHECK(t.budget.uncharged() == Bytes{});
  CHECK(t.device.on_host() == Bytes{3 * kHandle.count});
  CHECK(t.memory.use().host == Bytes{});  // reported as away memory, and only so
  t.check();
  // Pages that have been on the host keep their host memory, in the window as well.
  REQUIRE(t.exchange_all(2));
  CHECK(t.memory.use().host == Bytes{2 * kHandle.count});
  CHECK(t.device.on_host() == Bytes{3 * kHandle.count});
  t.check();
  REQUIRE(t.memory.free(second) == CUDA_SUCCESS);
  CHECK(t.memory.use().host == Bytes{});
  t.check();
}

TEST_CASE("managed memory that is promised and freed, or comes in, is promised no more", "[managed][away]") {
  ManagedOversized t;
  t.added(kRoom, 1);
  const CUdeviceptr second = t.added(kHandle, 2);
  const CUdeviceptr third = t.added(kHandle, 3);
  REQUIRE(t.memory.free(second) == CUDA_SUCCESS);
  CHECK(t.budget.uncharged() == kHandle);
  t.check();
  REQUIRE(t.exchange_all(1));
  CHECK(t.budget.uncharged() == Bytes{});
  t.check();
  CHECK(holds(third, kHandle, 3));
}

TEST_CASE("managed memory is away only as far as host memory is left", "[managed][away]") {
  ManagedOversized t;
  t.added(kRoom, 1);
  t.budget.left = kHandle;
  CUdeviceptr address = 0;
  CHECK(t.memory.allocate(&address, Bytes{2 * kHandle.count}) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.all_away().empty());
  t.check();
  const CUdeviceptr second = t.added(kHandle, 2);
  CHECK(t.memory.allocate(&address, kHandle) == CUDA_ERROR_OUT_OF_MEMORY);  // the rest is promised
  // Nothing leaves without host memory.
  CHECK_FALSE(t.exchange_all(1));
  CHECK(t.all_away() == std::vector<CUdeviceptr>{second});
  t.check();
}

TEST_CASE("managed handles change places, and turns leave those on the host where they are",
          "[managed][away]") {
  ManagedOversized t;
  const CUdeviceptr first = t.added(kRoom, 1);
  const CUdeviceptr second = t.added(Bytes{3 * kHandle.count}, 2);
  for (int round = 0; round < 4; ++round) {
    REQUIRE(t.exchange_all(3));
    t.check();
    const std::vector<CUdeviceptr> away = t.all_away();
    t.memory.set_allowed({});
    REQUIRE(t.memory.evict());
    CHECK(t.memory.use().resident == Bytes{});
    CHECK(t.all_away() == away);
    CHECK_FALSE(t.exchange_all(1));  // nothing enters without the lease's memory
    t.memory.set_allowed(kRoom);
    REQUIRE(t.memory.restore());
    CHECK(t.memory.use().resident == kRoom);
    t.check();
  }
  CHECK(holds(first, kRoom, 1));
  CHECK(holds(second, Bytes{3 * kHandle.count}, 2));
}

TEST_CASE("managed handles count as moved in both directions, and new memory does not", "[managed][away]") {
  ManagedOversized t;
  t.added(kRoom, 1);
  t.added(Bytes{2 * kHandle.count}, 2);
  CHECK(t.memory.moved() == Traffic{});
  REQUIRE(t.exchange_all(2));  // the handles that enter have never had host memory
  CHECK(t.memory.moved() == Traffic{.evicted = Bytes{2 * kHandle.count}, .restored = {}});
  REQUIRE(t.exchange_all(2));
  CHECK(t.memory.moved() ==
        Traffic{.evicted = Bytes{4 * kHandle.count}, .restored = Bytes{2 * kHandle.count}});
}

TEST_CASE("the memory that a managed process could still get is unused window and host memory",
          "[managed][away]") {
  ManagedOversized t;
  t.added(kRoom, 1);
  const CUdeviceptr second = t.added(kHandle, 2);
  t.budget.left = Bytes{4 * kHandle.count};
  CHECK(t.away.growth({}) == Bytes{3 * kHandle.count});
  REQUIRE(t.memory.free(second) == CUDA_SUCCESS);
  CHECK(t.away.growth({}) == Bytes{4 * kHandle.count});
}

TEST_CASE("whatever call of an exchange of managed memory fails, the window holds", "[managed][away]") {
  for (unsigned call = 1; call < 40; ++call)
    for (unsigned more : {0u, 1u, 2u, 6u}) {
      ManagedOversized t;
      const CUdeviceptr first = t.added(kRoom, 1);
      const CUdeviceptr second = t.added(Bytes{3 * kHandle.count}, 2);
      t.device.fail_call(call, CUDA_ERROR_UNKNOWN, more);
      t.exchange_all(3);
      t.memory.tend_freed();
      t.device.fail_call(0);
      t.check();
      REQUIRE(t.exchange_all(1));
      t.check();
      REQUIRE(holds(first, kRoom, 1));
      REQUIRE(holds(second, Bytes{3 * kHandle.count}, 2));
    }
}

TEST_CASE("an exchange that is stopped moves no further handle, and ends its announcement",
          "[managed][away]") {
  ManagedOversized t;
  const CUdeviceptr first = t.added(kRoom, 1);
  const CUdeviceptr second = t.added(Bytes{3 * kHandle.count}, 2);
  const auto moving = [&](CUdeviceptr address) { return t.away.operands(address).front().moving; };
  t.away.schedule({first, second});
  CHECK(moving(first));
  CHECK(moving(second));
  CHECK_FALSE(moving(second + kHandle.count));
  CHECK(t.away.handles().size() == 5);
  t.away.wait_for({second}, std::chrono::milliseconds(1));  // in vain
  int asked = 0;
  const std::vector<CUdeviceptr> out = t.all_here();
  const std::vector<CUdeviceptr> in = t.all_away();
  CHECK_FALSE(t.away.exchange(out, in, [&] { return ++asked > 1; }));
  CHECK(t.all_away().size() > 3);  // some have left
  CHECK(t.away.handles().size() == 7);
  CHECK_FALSE(moving(first));
  t.away.wait_for({first, second}, std::chrono::hours(1));  // returns at once
  t.check();
  t.away.schedule({first});
  t.away.cancel({first});
  CHECK_FALSE(moving(first));
  CHECK(holds(first, kRoom, 1));
  CHECK(holds(second, Bytes{3 * kHandle.count}, 2));
}

TEST_CASE("a restore leaves managed memory that is away on the host", "[managed][away]") {
  FakeManagedDevice device;
  FakeBudget budget;
  ManagedMover mover(device, budget);
  Handle handle;
  REQUIRE(device.reserve(&handle.address, kHandle) == CUDA_SUCCESS);
  handle.size = kHandle;
  handle.away = true;
  REQUIRE(mover.begin_in(handle, Lane{0}) == CUDA_SUCCESS);
  CHECK(device.misuse() == "");  // a prefetch would be one, without a context
  CHECK(device.is_kept_on_host(handle.address));
  CHECK(handle.mapped);
  mover.forget(handle);
  CHECK(budget.uncharged() == Bytes{});
}

TEST_CASE("managed memory that the driver does not keep on the host is refused", "[managed][away]") {
  ManagedOversized t;
  t.added(kRoom, 1);
  t.device.refuses_advice = true;
  CUdeviceptr address = 0;
  CHECK(t.memory.allocate(&address, kHandle) == CUDA_ERROR_OUT_OF_MEMORY);
  t.device.refuses_advice = false;
  CHECK(t.all_away().empty());
  t.check();
  t.device.advisable = false;
  CHECK(t.memory.away_memory() == nullptr);
  CHECK(t.memory.allocate(&address, kHandle) == CUDA_ERROR_OUT_OF_MEMORY);
  t.check();
}
