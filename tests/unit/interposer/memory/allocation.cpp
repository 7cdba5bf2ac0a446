// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "tests/unit/interposer/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

CUdeviceptr allocated(World& t, Bytes size) {
  CUdeviceptr address = 0;
  REQUIRE(t.memory.allocate(&address, size) == CUDA_SUCCESS);
  return address;
}

}  // namespace

TEST_CASE("invalid calls are refused as the driver refuses them", "[allocation]") {
  World t;
  CUdeviceptr address = 0;
  CHECK(t.memory.allocate(&address, {}) == CUDA_ERROR_INVALID_VALUE);
  CHECK(t.memory.allocate(nullptr, {1}) == CUDA_ERROR_INVALID_VALUE);
  CHECK(t.memory.allocate(&address, {~0ull}) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(address == 0);
  CHECK(t.books.asked == 0);
}

TEST_CASE("small blocks share handles, and each is its own", "[allocation]") {
  World t;
  std::vector<CUdeviceptr> blocks;
  for (unsigned i = 0; i < 500; ++i) {
    blocks.push_back(allocated(t, {3000}));
    CHECK(blocks.back() % 512 == 0);
    fill(blocks.back(), {3000}, i);
  }
  for (unsigned i = 0; i < 500; ++i) CHECK(holds(blocks[i], {3000}, i));
  CHECK(t.memory.handles().size() < 50);
  const Bytes asked{500 * 3072};
  CHECK(t.memory.use().swappable.count < asked.count * 4 / 3);
  CHECK(t.memory.use().resident == t.memory.use().swappable);
  CHECK(t.device.physical() == t.memory.use().resident);
}

TEST_CASE("a large allocation has a range of its own, in large handles", "[allocation]") {
  World t;
  const CUdeviceptr address = allocated(t, kibibytes(128 * 3 + 5));
  REQUIRE(t.memory.handles().size() == 3);
  CHECK(t.memory.use().swappable == kibibytes(128 * 3 + 8));
  CHECK(t.books.asked == 1);
  fill(address, kibibytes(128 * 3 + 5), 1);
  CHECK(holds(address, kibibytes(128 * 3 + 5), 1));
}

TEST_CASE("a block is found by the address of any of its bytes", "[allocation]") {
  World t;
  const CUdeviceptr small = allocated(t, {1000});
  const CUdeviceptr large = allocated(t, kibibytes(100));
  for (const auto& [address, size] : {std::pair{small, Bytes{1000}}, std::pair{large, kibibytes(100)}}) {
    const std::optional<AddressRange> range = t.memory.find(address + size.count - 1);
    REQUIRE(range);
    CHECK(range->base == address);
    CHECK(range->size == size);
    CHECK(t.memory.find(address));
    // The address after the block belongs to another block or to no block.
    const std::optional<AddressRange> next = t.memory.find(address + size.count);
    CHECK((!next || next->base != address));
  }
  CHECK_FALSE(t.memory.find(0));
}

TEST_CASE("free() refuses addresses at which no block begins, and frees no block twice", "[allocation]") {
  World t;
  const CUdeviceptr address = allocated(t, {1000});
  CHECK_FALSE(t.memory.free(0));
  CHECK_FALSE(t.memory.free(address + 1));
  CHECK(t.memory.free(address) == CUDA_SUCCESS);
  CHECK_FALSE(t.memory.free(address));
  CHECK_FALSE(t.memory.find(address));
}

TEST_CASE("a large block that is freed is no longer known", "[allocation]") {
  World t;
  const CUdeviceptr address = allocated(t, kibibytes(100));
  CHECK(t.memory.free(address) == CUDA_SUCCESS);
  CHECK_FALSE(t.memory.free(address));
  CHECK_FALSE(t.memory.find(address));
}

TEST_CASE("an arena is released with its last block, and the next block gets a new arena", "[allocation]") {
  World t;
  for (int round = 0; round < 3; ++round) {
    const CUdeviceptr first = allocated(t, {1000});
    const CUdeviceptr second = allocated(t, {1000});
    fill(first, {1000}, 1);
    CHECK(t.memory.free(second) == CUDA_SUCCESS);
    CHECK(holds(first, {1000}, 1));
    CHECK(t.memory.free(first) == CUDA_SUCCESS);
    CHECK(t.device.physical() == Bytes{});
    CHECK(t.device.reserved() == Bytes{});
  }
}

TEST_CASE("an arena that the driver does not take back is used for later blocks", "[allocation]") {
  World t;
  const CUdeviceptr address = allocated(t, {1000});
  const Bytes before = t.memory.use().swappable;
  t.device.fail_call(2);
  CHECK(t.memory.free(address) == CUDA_SUCCESS);
  CHECK(t.device.has_failed());
  CHECK(t.memory.use().swappable == before);
  const CUdeviceptr next = allocated(t, {1000});
  CHECK(t.memory.use().swappable == before);
  fill(next, {1000}, 1);
  CHECK(t.memory.free(next) == CUDA_SUCCESS);
  CHECK(t.memory.use().swappable == Bytes{});
  CHECK(t.device.reserved() == Bytes{});
}

TEST_CASE("after all blocks are freed, nothing is left", "[allocation]") {
  World t;
  std::vector<CUdeviceptr> blocks;
  for (unsigned i = 0; i < 40; ++i) blocks.push_back(allocated(t, kibibytes(1 + i * 7)));
  const unsigned before = t.device.synchronizations();
  for (const CUdeviceptr block : blocks) CHECK(t.memory.free(block) == CUDA_SUCCESS);
  CHECK(t.device.synchronizations() == before + 40);
  CHECK(t.memory.use().swappable == Bytes{});
  CHECK(t.memory.use().resident == Bytes{});
  CHECK(t.device.physical() == Bytes{});
  CHECK(t.device.reserved() == Bytes{});
  CHECK(t.books.last.swappable == Bytes{});
  CHECK(t.memory.handles().empty());
  CHECK(t.device.misuse().empty());
}

TEST_CASE("memory of a context is freed when the context is destroyed", "[allocation]") {
  World t;
  const CUdeviceptr address = allocated(t, kibibytes(100));
  fill(address, kibibytes(100), 1);
  FakeDestruction refused([] { return CUDA_ERROR_INVALID_CONTEXT; });
  CHECK(t.memory.free_with(refused, {address}) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(holds(address, kibibytes(100), 1));
  FakeDestruction destruction([&] {
    CHECK_FALSE(t.memory.find(address));
    CHECK(t.memory.free(address) == CUDA_ERROR_INVALID_VALUE);
    CHECK(holds(address, kibibytes(100), 1));
    return CUDA_SUCCESS;
  });
  CHECK(t.memory.free_with(destruction, {address}) == CUDA_SUCCESS);
  CHECK(t.memory.use().swappable == Bytes{});
  CHECK(t.device.reserved() == Bytes{});
}

TEST_CASE("all blocks of a context are freed with it, or all stay if it is not destroyed", "[allocation]") {
  World t;
  const std::vector<CUdeviceptr> blocks = {allocated(t, kibibytes(100)), allocated(t, {1000}),
                                           allocated(t, kibibytes(200))};
  const Bytes before = t.memory.use().swappable;
  FakeDestruction refused([&] {
    for (const CUdeviceptr block : blocks) CHECK_FALSE(t.memory.find(block));
    return CUDA_ERROR_INVALID_CONTEXT;
  });
  CHECK(t.memory.free_with(refused, blocks) == CUDA_ERROR_INVALID_CONTEXT);
  for (const CUdeviceptr block : blocks) CHECK(t.memory.find(block));
  CHECK(t.memory.use().swappable == before);
  FakeDestruction destruction([] { return CUDA_SUCCESS; });
  CHECK(t.memory.free_with(destruction, blocks) == CUDA_SUCCESS);
  for (const CUdeviceptr block : blocks) CHECK_FALSE(t.memory.free(block));
  CHECK(t.memory.use().swappable == Bytes{});
  CHECK(t.books.last.swappable == Bytes{});
  CHECK(t.device.reserved() == Bytes{});
  CHECK(t.device.synchronizations() == 0);  // the destruction waits for the work that used the blocks
}

TEST_CASE("a free waits for the GPU if any part of the block is on the GPU", "[allocation]") {
  World t;
  const CUdeviceptr address = allocated(t, kibibytes(384));
  t.memory.set_allowed(kibibytes(GENERATE(128u, 256u)));
  REQUIRE(t.memory.evict());
  const unsigned before = t.device.synchronizations();
  CHECK(t.memory.free(address) == CUDA_SUCCESS);
  CHECK(t.device.synchronizations() == before + 1);
}

TEST_CASE("a free waits for the GPU, and fails as the driver fails", "[allocation]") {
  World t;
  const Bytes size = GENERATE(Bytes{1000}, kibibytes(100));
  const CUdeviceptr address = allocated(t, size);
  t.device.fail_call(1, CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(t.memory.free(address) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(t.memory.find(address));
  CHECK(t.memory.free(address) == CUDA_SUCCESS);
  CHECK(t.device.physical() == Bytes{});
}

TEST_CASE("a free takes effect later if a capture begins before its wait for the GPU", "[allocation]") {
  World t;
  const CUdeviceptr address = allocated(t, kibibytes(100));
  t.device.fail_call(1, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(t.memory.free(address) == CUDA_SUCCESS);
  CHECK_FALSE(t.memory.find(address));
  CHECK(t.memory.free(address) == CUDA_ERROR_INVALID_VALUE);
  CHECK(t.device.physical() == kibibytes(100));
  t.memory.tend_freed();
  CHECK(t.device.physical() == Bytes{});
}

TEST_CASE("a block that is freed after the GPU was found idle is released the next time", "[allocation]") {
  World t;
  const CUdeviceptr first = allocated(t, kibibytes(100));
  const CUdeviceptr second = allocated(t, kibibytes(200));
  const auto free_in_capture = [&t](CUdeviceptr address) {
    t.books.in_capture = true;
    CHECK(t.memory.free(address) == CUDA_SUCCESS);
    t.books.in_capture = false;
  };
  free_in_capture(first);
  t.books.after_idle = [&] { free_in_capture(second); };  // work that uses the second block may have begun
  t.memory.tend_freed();
  t.books.after_idle = nullptr;
  CHECK(t.device.physical() == kibibytes(200));
  t.memory.tend_freed();
  CHECK(t.device.physical() == Bytes{});
}

TEST_CASE("a free during a capture comes later", "[allocation]") {
  World t;
  const CUdeviceptr large = allocated(t, kibibytes(100));
  const CUdeviceptr small = allocated(t, kibibytes(1));
  t.books.in_capture = true;
  CHECK(t.memory.free(large) == CUDA_SUCCESS);
  CHECK(t.memory.free(small) == CUDA_SUCCESS);
  CHECK(t.memory.free(large) == CUDA_ERROR_INVALID_VALUE);
  CHECK_FALSE(t.memory.find(large));
  CHECK(t.device.synchronizations() == 0);
  fill(large, kibibytes(100), 1);  // the captured graph may use the block later
  allocated(t, {512});
  CHECK(t.device.synchronizations() == 0);

  for (int i = 0; i < 2; ++i) {
    t.memory.tend_freed();
    CHECK(t.memory.restore());
    CHECK(t.memory.evict());
  }
  CHECK(t.device.physical() > kibibytes(100));
  CHECK(t.memory.due() == kibibytes(100 + 1));

  t.books.in_capture = false;
  SECTION("when memory is short, and the driver fails: out of memory, and freed later") {
    t.books.limit = kibibytes(110).count;
    t.device.fail_call(1);
    CUdeviceptr other = 0;
    CHECK(t.memory.allocate(&other, kibibytes(90)) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(t.memory.due() == kibibytes(100 + 1));
    t.memory.tend_freed();
  }
  SECTION("when memory is short, and not before: an allocation waits for nothing") {
    const CUdeviceptr other = allocated(t, {512});
    CHECK(t.device.synchronizations() == 0);
    CHECK(t.memory.free(other) == CUDA_SUCCESS);
    t.books.limit = kibibytes(110).count;
    allocated(t, kibibytes(90));
    CHECK(t.device.synchronizations() == 2);
    CHECK(t.books.told_of_host == 0);
  }
  SECTION("when memory is short, also for what cannot be swapped") {
    t.books.limit = kibibytes(110).count;
    CHECK(t.memory.pin(kibibytes(90)) == CUDA_SUCCESS);
    CHECK(t.device.synchronizations() == 1);
  }
  SECTION("with the next turn, when the GPU is idle anyway") {
    CHECK(t.memory.restore());
    CHECK(t.device.synchronizations() == 0);
  }
  SECTION("when the GPU is found idle, and then without waiting for it") {
    t.books.is_idle = false;
    t.memory.tend_freed();
    CHECK(t.memory.use().swappable > kibibytes(100));
    t.books.is_idle = true;
    t.memory.tend_freed();
    CHECK(t.device.synchronizations() == 0);
  }
  SECTION("again, if the driver fails") {
    t.device.fail_call(1);
    t.memory.tend_freed();
    CHECK(t.memory.use().swappable > kibibytes(100));
    CHECK(t.memory.free(large) == CUDA_ERROR_INVALID_VALUE);
    t.memory.tend_freed();
  }
  CHECK(t.memory.use().swappable < kibibytes(100));
}

TEST_CASE("an allocation that the arbiter refuses fails for lack of memory, and leaves no trace",
          "[allocation]") {
  World t;
  t.books.limit = kibibytes(90).count;
  CUdeviceptr address = 0;
  CHECK(t.memory.allocate(&address, kibibytes(100)) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.memory.use().swappable == Bytes{});
  CHECK(t.books.last.swappable == Bytes{});
  CHECK(t.device.reserved() == Bytes{});
  CHECK(t.memory.allocate(&address, kibibytes(80)) == CUDA_SUCCESS);
  CHECK(t.memory.allocate(&address, kibibytes(16)) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.memory.allocate(&address, kibibytes(8)) == CUDA_SUCCESS);
}

TEST_CASE("if a roomy arena is refused, an exact one is allocated", "[allocation]") {
  World t;
  for (int i = 0; i < 16; ++i) allocated(t, kibibytes(32));
  const MemoryUse before = t.memory.use();
  SECTION("for want of device memory") { t.books.limit = (before.swappable + kibibytes(32)).count; }
  SECTION("for want of host memory, which nobody is told of") {
    t.budget.most = before.swappable + kibibytes(32);
  }
  allocated(t, kibibytes(32));
  CHECK(t.memory.use().swappable == before.swappable + kibibytes(32));
  CHECK(t.books.told_of_host == 0);
}

TEST_CASE("a footprint that the host budget can never hold is refused at once", "[allocation]") {
  World t;
  CHECK(t.memory.use().host_limit == Bytes{});
  t.budget.most = kibibytes(256);
  t.budget.in_use = kibibytes(77);
  t.memory.tend();
  CHECK(t.memory.use().host_limit == kibibytes(256));
  allocated(t, kibibytes(200));
  CUdeviceptr address = 0;
  const unsigned asked = t.books.asked;
  CHECK(t.memory.allocate(&address, kibibytes(64)) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.books.asked == asked);
  CHECK(t.books.told_of_host == 1);
  CHECK(t.books.last_refusal.size >= kibibytes(64));
  CHECK(t.books.last_refusal.host_most == kibibytes(256));
  CHECK(t.books.last_refusal.host_used == kibibytes(77));
  CHECK(t.memory.use().swappable == kibibytes(200));
  allocated(t, kibibytes(48));
}

TEST_CASE("an allocation gets physical memory up to the allowed size, and the rest when more is allowed",
          "[allocation]") {
  World t;
  t.memory.set_allowed(kibibytes(128));
  const CUdeviceptr address = allocated(t, kibibytes(384));
  CHECK(t.memory.use().swappable == kibibytes(384));
  CHECK(t.memory.use().resident == kibibytes(128));
  CHECK(t.device.physical() == kibibytes(128));
  t.memory.set_allowed(kibibytes(383));
  CHECK_FALSE(t.memory.restore());
  CHECK(t.memory.use().resident == kibibytes(256));
  t.memory.set_allowed(kibibytes(384));
  CHECK(t.memory.restore());
  fill(address, kibibytes(384), 1);
  CHECK(t.device.misuse().empty());
}

TEST_CASE("the driver has less memory than the arbiter allows", "[allocation]") {
  SwapOptions options = small_sizes();
  options.patience = std::chrono::milliseconds(8);
  World t(gibibytes(1), options);
  CUdeviceptr address = 0;
  SECTION("for good: out of memory") {
    t.device.set_out_of_memory(true);
    CHECK(t.memory.allocate(&address, kibibytes(384)) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(t.memory.use().swappable == Bytes{});
    CHECK(t.memory.use().resident == Bytes{});
    CHECK(t.books.last.resident == Bytes{});
    CHECK(t.device.reserved() == Bytes{});
  }
  SECTION("until the arbiter has been asked once more: nobody notices") {
    t.device.set_out_of_memory(true);
    t.books.when_asked = [&] { t.device.set_out_of_memory(t.books.asked < 2); };
    CHECK(t.memory.allocate(&address, kibibytes(384)) == CUDA_SUCCESS);
    CHECK(t.books.asked == 2);
    CHECK(t.memory.use().swappable == kibibytes(384));
    CHECK(t.memory.use().resident == kibibytes(384));
  }
  SECTION("until the arbiter refuses: out of memory") {
    t.device.set_out_of_memory(true);
    t.books.when_asked = [&] { t.books.limit = t.books.asked < 2 ? gibibytes(1).count : 0; };
    CHECK(t.memory.allocate(&address, kibibytes(384)) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(t.books.asked == 2);
    CHECK(t.memory.use().swappable == Bytes{});
    CHECK(t.device.reserved() == Bytes{});
  }
  SECTION("for a moment: nobody notices") {
    t.device.fail_call(2, CUDA_ERROR_OUT_OF_MEMORY, 1);
    CHECK(t.memory.allocate(&address, kibibytes(384)) == CUDA_SUCCESS);
    CHECK(t.memory.use().resident == kibibytes(384));
  }
  SECTION("another error is told at once") {
    t.device.fail_call(2, CUDA_ERROR_ECC_UNCORRECTABLE);
    CHECK(t.memory.allocate(&address, kibibytes(384)) == CUDA_ERROR_ECC_UNCORRECTABLE);
    CHECK(t.device.reserved() == Bytes{});
  }
  CHECK(t.device.misuse().empty());
}

TEST_CASE("the arbiter is told of pinned memory and of the size of contexts", "[allocation]") {
  World t;
  t.books.limit = mebibytes(1).count;
  CHECK(t.memory.pin(kibibytes(600)) == CUDA_SUCCESS);
  CHECK(t.memory.pin(kibibytes(600)) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.memory.use().pinned == kibibytes(600));
  const unsigned asked = t.books.asked;
  CHECK(t.memory.pin(kLargestAllocation) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.memory.pin({~0ull}) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.books.asked == asked);
  CHECK(t.memory.use().pinned == kibibytes(600));
  t.memory.unpin(kibibytes(100));
  CHECK(t.books.last.pinned == kibibytes(500));
  t.memory.unpin(mebibytes(1));
  CHECK(t.memory.use().pinned == Bytes{});
  t.memory.set_context_size(mebibytes(500));
  CHECK(t.books.last.context == mebibytes(500));
  const unsigned reports = t.books.reports;
  t.memory.set_context_size(mebibytes(500));
  CHECK(t.books.reports == reports);
}

namespace {

// Records the ranges for which allow_access() is called.
struct AccessNotes final : FakeDevice {
  CUresult allow_access(CUdeviceptr address, Bytes size) override {
    given.push_back(address);
    return FakeDevice::allow_access(address, size);
  }
  std::vector<CUdeviceptr> given;
};

}  // namespace

TEST_CASE("renew_access() gives access anew to all mapped handles, and to nothing else", "[allocation]") {
  AccessNotes device;
  FakeBudget budget;
  FakeHost host;
  FakeBooks books;
  SwapMemory memory(device, budget, host, books, small_sizes());
  books.memory = &memory;
  memory.set_allowed(gibibytes(1));
  device.given.clear();
  memory.renew_access();
  CHECK(device.given.empty());
  for (const Bytes size : {kibibytes(384), kibibytes(256), kibibytes(3)}) {
    CUdeviceptr address = 0;
    REQUIRE(memory.allocate(&address, size) == CUDA_SUCCESS);
  }
  memory.set_allowed(kibibytes(256 + 128 + 4));
  REQUIRE(memory.evict());
  std::vector<CUdeviceptr> there;
  for (const Handle& handle : memory.handles())
    if (handle.mapped) there.push_back(handle.address);
  REQUIRE(there.size() == 4);
  device.given.clear();
  memory.renew_access();
  CHECK(device.given == there);
  for (const Handle& handle : memory.handles()) CHECK_FALSE(handle.busy);
  memory.set_allowed(gibibytes(1));
  CHECK(memory.restore());
}

TEST_CASE("memory that is pinned already is requested by claim(), which does not wait for the answer",
          "[allocation]") {
  World t;
  t.books.limit = 0;
  t.memory.pin_unasked(kibibytes(100));
  t.memory.pin_unasked(kibibytes(20));
  CHECK(t.memory.use().pinned == kibibytes(120));
  CHECK(t.memory.use().settling == Bytes{});
  CHECK(t.books.asked == 0);
  CHECK(t.books.claimed == 2);
}

TEST_CASE("allowed() returns the size that was set last", "[allocation]") {
  World t;
  allocated(t, kibibytes(100));
  t.memory.set_allowed(kibibytes(7));
  CHECK(t.memory.allowed() == kibibytes(7));
}

TEST_CASE("memory that became resident, and memory that was refused, is reported to the arbiter",
          "[allocation]") {
  World t;
  allocated(t, kibibytes(100));
  CHECK(t.books.last.resident == kibibytes(100));
  allocated(t, {1000});
  CHECK(t.books.last.resident == kibibytes(104));
  t.books.limit = kibibytes(110).count;
  CUdeviceptr address = 0;
  unsigned before = t.books.reports;
  CHECK(t.memory.allocate(&address, kibibytes(100)) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.books.reports == before + 1);
  before = t.books.reports;
  CHECK(t.memory.pin(kibibytes(100)) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.books.reports == before + 1);
  CHECK(t.books.last.footprint() == kibibytes(104));
  t.books.limit = gibibytes(1).count;
  t.device.fail_call(1);
  CHECK(t.memory.allocate(&address, kibibytes(100)) == CUDA_ERROR_UNKNOWN);
  CHECK(t.books.last.footprint() == t.memory.use().footprint());
}

TEST_CASE("the limits of the host and of the job are told from the beginning", "[allocation]") {
  FakeDevice device;
  FakeBudget budget;
  FakeHost host;
  FakeBooks books;
  budget.most = kibibytes(256);
  budget.most_of_job = kibibytes(512);
  SwapMemory memory(device, budget, host, books, small_sizes());
  books.memory = &memory;
  CHECK(memory.use().host_limit == kibibytes(256));
  CHECK(memory.job_host_limit() == kibibytes(512));
  budget.most_of_job = kibibytes(300);
  memory.tend();
  CHECK(memory.use().host_limit == kibibytes(256));
  CHECK(memory.job_host_limit() == kibibytes(300));
}

TEST_CASE("a limit of the host that changes is told and followed, upwards and downwards", "[allocation]") {
  World t;
  t.budget.most = kibibytes(256);
  t.memory.tend();
  const CUdeviceptr large = allocated(t, kibibytes(256));
  CUdeviceptr address = 0;
  CHECK(t.memory.allocate(&address, kibibytes(64)) == CUDA_ERROR_OUT_OF_MEMORY);
  const unsigned reports = t.books.reports;
  t.memory.tend();
  CHECK(t.books.reports == reports);  // nothing has changed

  t.budget.most = kibibytes(320);
  t.memory.tend();
  CHECK(t.books.last.host_limit == kibibytes(320));
  allocated(t, kibibytes(64));

  t.budget.most = kibibytes(128);
  t.memory.tend();
  CHECK(t.books.last.host_limit == kibibytes(128));
  CHECK(t.books.last.swappable == kibibytes(320));  // existing blocks stay
  CHECK(t.memory.free(large) == CUDA_SUCCESS);
  CHECK(t.memory.allocate(&address, kibibytes(256)) == CUDA_ERROR_OUT_OF_MEMORY);
  allocated(t, kibibytes(64));

  t.budget.most_of_job = kibibytes(100);
  const unsigned told = t.books.reports;
  t.memory.tend();
  CHECK(t.books.reports == told + 1);
  t.budget.most.reset();
  t.budget.most_of_job.reset();
  t.memory.tend();
  CHECK(t.books.last.host_limit == Bytes{});
}

TEST_CASE("a limit of the host that falls below what is evicted takes nothing back", "[allocation]") {
  World t;
  t.budget.most = kibibytes(1024);
  const CUdeviceptr a = allocated(t, kibibytes(256));
  const CUdeviceptr b = allocated(t, kibibytes(256));
  fill(a, kibibytes(256), 1);
  fill(b, kibibytes(256), 2);
  t.memory.set_allowed(kibibytes(256));
  REQUIRE(t.memory.evict());
  t.budget.most = kibibytes(64);
  t.budget.left = {};
  t.memory.tend();
  t.memory.set_allowed({});
  CHECK_FALSE(t.memory.evict());
  CHECK(t.books.stuck);
  CHECK(t.memory.use().resident == kibibytes(256));
  t.memory.set_allowed(kibibytes(512));
  REQUIRE(t.memory.restore());
  CHECK(holds(a, kibibytes(256), 1));
  CHECK(holds(b, kibibytes(256), 2));
}

TEST_CASE("a host limit of zero bytes is a limit, too", "[allocation]") {
  World t;
  t.budget.most = Bytes{};
  CUdeviceptr address = 0;
  CHECK(t.memory.allocate(&address, kibibytes(4)) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.memory.use().host_limit == Bytes{1});
  CHECK(t.memory.job_host_limit() == Bytes{1});
  CHECK(t.books.told_of_host == 1);
}

TEST_CASE("memory that a host limit has allowed once is not compared with the limit again", "[allocation]") {
  World t;
  t.budget.most = kibibytes(512);
  const CUdeviceptr large = allocated(t, kibibytes(512));
  CHECK(t.memory.free(large) == CUDA_SUCCESS);
  allocated(t, kibibytes(100));
  t.budget.most = kibibytes(256);
  allocated(t, kibibytes(412));
  CUdeviceptr address = 0;
  CHECK(t.memory.allocate(&address, {512}) == CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("arenas grow up to the largest", "[allocation]") {
  World t;
  for (int i = 0; i < 60; ++i) allocated(t, kibibytes(32));
  Bytes largest;
  for (const Handle& handle : t.memory.handles()) largest = std::max(largest, handle.size);
  CHECK(largest == kibibytes(128));
}

TEST_CASE("the arena with the newest block leaves last, wherever it lies", "[allocation]") {
  World t;
  const CUdeviceptr hole = allocated(t, kibibytes(100));
  const CUdeviceptr small = allocated(t, {1000});
  if (GENERATE(false, true)) CHECK(t.memory.free(hole) == CUDA_SUCCESS);  // `large` reuses its addresses
  const CUdeviceptr large = allocated(t, kibibytes(100));
  allocated(t, {1000});
  t.memory.set_allowed(kibibytes(4));
  REQUIRE(t.memory.evict());
  CHECK(t.device.mapped_at(small) != 0);
  CHECK(t.device.mapped_at(large) == 0);
}

TEST_CASE("a SwapMemory that is destroyed leaves nothing behind, on the GPU or on the host", "[allocation]") {
  FakeDevice device;
  FakeBudget budget;
  FakeHost host;
  {
    FakeBooks books;
    SwapMemory memory(device, budget, host, books, small_sizes());
    books.memory = &memory;
    memory.set_allowed(gibibytes(1));
    for (const Bytes size : {kibibytes(384), kibibytes(256), kibibytes(3)}) {
      CUdeviceptr address = 0;
      REQUIRE(memory.allocate(&address, size) == CUDA_SUCCESS);
      fill(address, size, 1);
    }
    memory.set_allowed(kibibytes(300));
    REQUIRE(memory.evict());
    REQUIRE(device.pinned() != Bytes{});
  }
  CHECK(device.physical() == Bytes{});
  CHECK(device.reserved() == Bytes{});
  CHECK(device.pinned() == Bytes{});
  CHECK(host.mapped == host.unmapped);
  CHECK(device.misuse() == "");
}
