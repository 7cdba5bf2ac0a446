// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/managed_memory.h"

#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "tests/unit/interposer/memory/support/fake_managed_device.h"
#include "tests/unit/interposer/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

constexpr Bytes kHandle = kibibytes(128);
const auto kFirstContext =
    reinterpret_cast<CUcontext>(std::uintptr_t{1});  // NOLINT(performance-no-int-to-ptr)

// Two large blocks of two handles each, and a small block, all with contents.
struct ManagedWorld {
  struct Block {
    CUdeviceptr address;
    Bytes size;
    unsigned seed;
  };
  FakeManagedDevice device;
  FakeBudget budget;
  FakeBooks books;
  ManagedMemory memory{device, budget, books, small_sizes()};
  std::vector<Block> blocks;
  Bytes footprint;

  ManagedWorld() {
    books.memory = &memory;
    memory.set_allowed(gibibytes(1));
    device.current = kFirstContext;
    add(kibibytes(256));
    add(kibibytes(256));
    add(kibibytes(3));
    footprint = memory.use().swappable;
  }
  void add(Bytes size) {
    CUdeviceptr address = 0;
    REQUIRE(memory.allocate(&address, size) == CUDA_SUCCESS);
    blocks.push_back({address, size, static_cast<unsigned>(blocks.size() + 1)});
    fill(address, size, blocks.back().seed);
  }
  bool evict_to(Bytes allowed) {
    memory.set_allowed(allowed);
    return memory.evict();
  }
  bool restore_to(Bytes allowed) {
    memory.set_allowed(allowed);
    return memory.restore();
  }
  void check_contents() const {
    for (const Block& block : blocks) REQUIRE(holds(block.address, block.size, block.seed));
    REQUIRE(device.misuse().empty());
  }
};

}  // namespace

TEST_CASE("managed memory leaves the GPU and comes back, at the same address", "[managed]") {
  ManagedWorld m;
  CHECK(m.footprint == kibibytes(256 + 256 + 4));  // each small block has a range of its own
  CHECK(m.memory.use().resident == m.footprint);
  CHECK(m.memory.use().pinned == Bytes{});
  for (int i = 0; i < 3; ++i) {
    REQUIRE(m.evict_to({}));
    CHECK(m.memory.use().resident == Bytes{});
    CHECK(m.memory.use().swappable == m.footprint);
    CHECK(m.device.on_host() == m.footprint);
    REQUIRE(m.restore_to(m.footprint));
    CHECK(m.memory.use().resident == m.footprint);
    CHECK(m.device.on_host() == Bytes{});
    m.check_contents();
  }
  for (const auto& block : m.blocks) CHECK(m.memory.free(block.address) == CUDA_SUCCESS);
  CHECK(m.memory.use().footprint() == Bytes{});
  CHECK(m.device.reserved() == Bytes{});
}

TEST_CASE("managed memory is freed with its context, or stays if the driver refuses", "[managed]") {
  ManagedWorld m;
  const bool evicted = GENERATE(false, true);
  if (evicted) REQUIRE(m.evict_to({}));
  const auto going = m.blocks[0];
  FakeDestruction refused([] { return CUDA_ERROR_INVALID_CONTEXT; });
  CHECK(m.memory.free_with(refused, {going.address, 12345}) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(m.memory.use().swappable == m.footprint);
  CHECK(m.memory.find(going.address + 1));
  if (evicted) REQUIRE(m.restore_to(m.footprint));
  m.check_contents();

  // When the driver frees the block, it may give the block's address to another thread at once.
  FakeDestruction destruction([&] {
    CHECK(m.device.unreserve(going.address, going.size) == CUDA_SUCCESS);
    CHECK_FALSE(m.memory.find(going.address));
    return CUDA_SUCCESS;
  });
  CHECK(m.memory.free_with(destruction, {going.address}) == CUDA_SUCCESS);
  m.blocks.erase(m.blocks.begin());
  m.footprint -= going.size;
  CHECK(m.memory.use().swappable == m.footprint);
  CHECK(m.memory.use().resident == m.footprint);
  CHECK_FALSE(m.memory.free(going.address));
  m.check_contents();
  REQUIRE(m.evict_to({}));
  REQUIRE(m.restore_to(m.footprint));
  m.check_contents();
}

TEST_CASE("memory whose free waits for a capture is freed with its context, or later if the context stays",
          "[managed]") {
  ManagedWorld m;
  const auto going = m.blocks[0];
  const auto other = m.blocks[1];
  m.device.current = reinterpret_cast<CUcontext>(std::uintptr_t{5});  // NOLINT(performance-no-int-to-ptr)
  CUdeviceptr elsewhere = 0;
  REQUIRE(m.memory.allocate(&elsewhere, kibibytes(64)) == CUDA_SUCCESS);
  m.books.in_capture = true;
  CHECK(m.memory.free(going.address) == CUDA_SUCCESS);
  CHECK(m.memory.free(elsewhere) == CUDA_SUCCESS);

  FakeDestruction refused([] { return CUDA_ERROR_INVALID_CONTEXT; }, kFirstContext);
  CHECK(m.memory.free_with(refused, {other.address}) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(m.memory.find(other.address));
  CHECK(m.memory.use().swappable == m.footprint + kibibytes(64));

  const bool destroyed = GENERATE(false, true);
  if (destroyed) {
    FakeDestruction destruction(
        [&] {
          // The driver frees both blocks, and may give their addresses to another thread at once.
          CHECK(m.device.unreserve(going.address, going.size) == CUDA_SUCCESS);
          CHECK(m.device.unreserve(other.address, other.size) == CUDA_SUCCESS);
          return CUDA_SUCCESS;
        },
        kFirstContext);
    CHECK(m.memory.free_with(destruction, {other.address}) == CUDA_SUCCESS);
    CHECK(m.memory.use().swappable == kibibytes(64 + 4));
  }
  m.books.in_capture = false;
  m.memory.tend_freed();
  CHECK(m.memory.use().swappable == (destroyed ? kibibytes(4) : kibibytes(256 + 4)));
  CHECK(m.device.reserved() == m.memory.use().swappable);
  CHECK(m.device.misuse().empty());
}

TEST_CASE("all memory of a context goes with it, also memory whose free is still due, or all of it stays",
          "[managed]") {
  ManagedWorld m;
  m.add(kibibytes(64));
  m.footprint = m.memory.use().swappable;
  REQUIRE(m.evict_to({}));
  CHECK(m.memory.use().host == m.footprint);
  CHECK(m.memory.free_unused(m.blocks[0].address) == CUDA_SUCCESS);
  CHECK(m.memory.free_unused(m.blocks[1].address) == CUDA_SUCCESS);
  CHECK(m.memory.due() == kibibytes(512));
  const std::vector<CUdeviceptr> named = {m.blocks[2].address, m.blocks[3].address, m.blocks[0].address};

  FakeDestruction refused([] { return CUDA_ERROR_INVALID_CONTEXT; }, kFirstContext);
  CHECK(m.memory.free_with(refused, named) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(m.memory.due() == kibibytes(512));
  CHECK(m.memory.use().swappable == m.footprint);
  CHECK(m.memory.use().host == m.footprint);
  CHECK(m.memory.handles().size() == 6);
  for (const Handle& handle : m.memory.handles()) CHECK_FALSE(handle.busy);
  CHECK_FALSE(m.memory.find(m.blocks[1].address));
  CHECK(m.memory.find(m.blocks[2].address));
  CHECK(m.memory.find(m.blocks[3].address));

  SECTION("it goes, whether it is there or away") {
    if (GENERATE(false, true)) {
      m.books.in_capture = true;  // otherwise the block would be freed during the turn
      REQUIRE(m.restore_to(m.footprint));
      m.books.in_capture = false;
    }
    FakeDestruction destruction(
        [&] {
          for (const auto& block : m.blocks) {
            const Bytes size{(block.size.count + 4095) / 4096 * 4096};
            CHECK(m.device.unreserve(block.address, size) == CUDA_SUCCESS);
          }
          return CUDA_SUCCESS;
        },
        kFirstContext);
    CHECK(m.memory.free_with(destruction, named) == CUDA_SUCCESS);
    CHECK(m.books.last.swappable == Bytes{});
    CHECK(m.memory.use().footprint() == Bytes{});
    CHECK(m.memory.use().resident == Bytes{});
    CHECK(m.memory.use().host == Bytes{});
    CHECK(m.memory.due() == Bytes{});
    CHECK(m.memory.handles().empty());
    for (const auto& block : m.blocks) CHECK_FALSE(m.memory.free(block.address));
    CHECK(m.memory.restore());
  }
  SECTION("it stays") {
    m.memory.tend_freed();
    CHECK(m.memory.use().swappable == kibibytes(64 + 4));
    CHECK(m.device.reserved() == kibibytes(64 + 4));
    m.blocks.erase(m.blocks.begin(), m.blocks.begin() + 2);
    REQUIRE(m.restore_to(m.footprint));
    m.check_contents();
  }
}

TEST_CASE("free_unused() does not wait for the GPU: the managed memory is freed later", "[managed]") {
  ManagedWorld m;
  const auto going = m.blocks[0];
  m.books.is_idle = false;
  CHECK(m.memory.free_unused(going.address) == CUDA_SUCCESS);
  CHECK_FALSE(m.memory.find(going.address));
  CHECK(m.memory.free(going.address) == CUDA_ERROR_INVALID_VALUE);
  m.memory.tend_freed();
  CHECK(m.device.reserved() == m.footprint);
  CHECK(m.memory.use().swappable == m.footprint);
  CHECK(m.memory.due() == going.size);
  SECTION("when it is idle") {
    m.books.is_idle = true;
    m.memory.tend_freed();
  }
  SECTION("at the end of a turn") { REQUIRE(m.evict_to(kibibytes(64))); }
  SECTION("with its context") {
    FakeDestruction destruction([&] { return m.device.unreserve(going.address, going.size); }, kFirstContext);
    CHECK(m.memory.free_with(destruction, {}) == CUDA_SUCCESS);
  }
  SECTION("where memory is short") {
    m.books.limit = m.footprint.count;
    m.footprint += kibibytes(64);
    m.add(kibibytes(64));
    CHECK(m.device.synchronizations() == 1);
  }
  CHECK(m.memory.use().swappable == m.footprint - going.size);
  CHECK(m.device.reserved() == m.footprint - going.size);
  CHECK(m.memory.due() == Bytes{});
  CHECK(m.device.misuse().empty());
}

TEST_CASE("the destruction of a context waits for a thread that frees memory of it, and for no other thread",
          "[managed]") {
  ManagedWorld m;
  const auto going = m.blocks[0];
  CHECK(m.memory.free_unused(going.address) == CUDA_SUCCESS);
  std::promise<void> freeing;
  std::promise<void> go_on;
  m.device.before_unreserve = [&] {
    freeing.set_value();
    go_on.get_future().wait();
  };
  std::thread freer([&] { m.memory.tend_freed(); });
  freeing.get_future().wait();

  const auto other = reinterpret_cast<CUcontext>(std::uintptr_t{7});  // NOLINT(performance-no-int-to-ptr)
  FakeDestruction of_another([] { return CUDA_SUCCESS; }, other);
  CHECK(m.memory.free_with(of_another, {}) == CUDA_SUCCESS);

  Bytes left;
  FakeDestruction of_its_own(
      [&] {
        left = m.device.reserved();
        return CUDA_SUCCESS;
      },
      kFirstContext);
  std::thread destroyer([&] { m.memory.free_with(of_its_own, {}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a wrong implementation of free_with() would
                                                               // end in this time
  go_on.set_value();
  freer.join();
  destroyer.join();
  m.device.before_unreserve = {};
  CHECK(left == m.footprint - going.size);
  CHECK(m.memory.use().swappable == m.footprint - going.size);
  CHECK(m.device.misuse().empty());
}

TEST_CASE("only as much managed memory moves as must, and the memory that was allocated first leaves first",
          "[managed]") {
  ManagedWorld m;
  REQUIRE(m.evict_to(m.footprint - kHandle));
  CHECK(m.device.on_host() == kHandle);
  CHECK_FALSE(m.restore_to(m.footprint - kibibytes(4)));
  CHECK(m.device.on_host() == kHandle);
  CHECK(m.restore_to(m.footprint));
  CHECK(m.device.on_host() == Bytes{});
  m.check_contents();
}

TEST_CASE("managed memory that is allocated outside a turn becomes resident in the next turn", "[managed]") {
  ManagedWorld m;
  REQUIRE(m.evict_to({}));
  CUdeviceptr late = 0;
  REQUIRE(m.memory.allocate(&late, kibibytes(64)) == CUDA_SUCCESS);
  CHECK(m.memory.use().resident == Bytes{});
  CHECK(m.memory.use().swappable == m.footprint + kibibytes(64));
  REQUIRE(m.restore_to(m.footprint + kibibytes(64)));
  CHECK(m.memory.use().resident == m.footprint + kibibytes(64));
}

TEST_CASE("evicted managed memory takes the job's host memory, and keeps it for later evictions",
          "[managed]") {
  ManagedWorld m;
  m.budget.left = kHandle;
  CHECK_FALSE(m.evict_to({}));
  CHECK(m.books.stuck);
  CHECK(m.memory.use().resident == m.footprint - kHandle);
  CHECK(m.memory.use().host == kHandle);
  m.check_contents();
  m.budget.left = m.footprint;
  CHECK(m.evict_to({}));
  CHECK(m.memory.use().host == m.footprint);
  REQUIRE(m.restore_to(m.footprint));
  CHECK(m.memory.use().host == m.footprint);  // the driver keeps the host memory
  m.budget.left = {};
  CHECK(m.evict_to({}));
  CHECK(m.memory.free(m.blocks[0].address) == CUDA_SUCCESS);
  CHECK(m.memory.use().host == m.footprint - kibibytes(256));
}

TEST_CASE("managed memory that can never fit is refused", "[managed]") {
  ManagedWorld m;
  CUdeviceptr address = 0;
  m.books.limit = m.footprint.count + kHandle.count;
  CHECK(m.memory.allocate(&address, kibibytes(132)) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(m.memory.use().swappable == m.footprint);
  m.books.limit = gibibytes(1).count;
  m.budget.most = m.footprint + kHandle;
  CHECK(m.memory.allocate(&address, kibibytes(256)) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(m.memory.use().swappable == m.footprint);
  CHECK(m.device.reserved() == m.footprint);
  CHECK(m.memory.allocate(&address, kHandle) == CUDA_SUCCESS);
}

TEST_CASE("a prefetch that fails loses nothing", "[managed]") {
  for (unsigned n = 1; n < 100; ++n) {
    ManagedWorld m;
    m.device.fail_call(n);
    const bool out = m.evict_to({});
    CHECK(m.memory.use().resident >= m.footprint - m.device.on_host());  // the count of resident memory is
                                                                         // never too small
    CHECK(out == (m.memory.use().resident == Bytes{}));
    CHECK(m.books.stuck == !out);
    const bool in = m.restore_to(m.footprint);
    const bool failed = m.device.has_failed();
    CHECK((in || failed));
    CHECK(m.restore_to(m.footprint));
    CHECK(m.memory.use().resident == m.footprint);
    m.check_contents();
    CHECK(m.evict_to({}));
    CHECK(m.device.on_host() == m.footprint);
    if (!failed) return;
  }
  FAIL("calls without end");
}

TEST_CASE("a restore waits for a lack of memory, and leaves other failures to faults", "[managed]") {
  ManagedWorld m;
  REQUIRE(m.evict_to({}));
  m.device.fail_call(2, CUDA_ERROR_OUT_OF_MEMORY);  // the second call; the first call is enter()
  CHECK_FALSE(m.restore_to(m.footprint));
  CHECK(m.memory.use().resident == m.footprint - m.device.on_host());
  CHECK(m.restore_to(m.footprint));
  REQUIRE(m.evict_to({}));
  m.device.fail_call(2, CUDA_ERROR_INVALID_DEVICE, 1000);
  CHECK(m.restore_to(m.footprint));
  CHECK(m.memory.use().resident == m.footprint);
}

TEST_CASE("managed memory is neither settled nor exported", "[managed]") {
  ManagedWorld m;
  CHECK(m.memory.settle(m.blocks[0].address, m.blocks[0].size) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK_FALSE(m.memory.exportable());
  CHECK(m.memory.program_memory() == nullptr);
  CHECK(m.memory.find(m.blocks[0].address + 5)->base == m.blocks[0].address);
}
