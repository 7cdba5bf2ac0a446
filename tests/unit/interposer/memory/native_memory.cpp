// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/native_memory.h"

#include <catch2/catch.hpp>
#include <future>

#include "tests/unit/interposer/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

// A driver that returns addresses, and fails if the test requests it.
struct Driver {
  CUdeviceptr next = 0x1000;
  CUresult answer = CUDA_SUCCESS;
  int failures = 0;  // number of further allocations that find no memory
} driver;

CUresult give(CUdeviceptr* address, std::size_t size) {
  if (driver.failures > 0) {
    --driver.failures;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (driver.answer == CUDA_SUCCESS) *address = driver.next += size;
  return driver.answer;
}

CUresult take(CUdeviceptr /*address*/) { return driver.answer; }

struct NativeWorld {
  NativeWorld() {
    driver = {};
    books.memory = &memory;
  }
  FakeBooks books;
  NativeMemory memory{{.allocate = give, .free = take}, books, std::chrono::milliseconds(20)};
};

}  // namespace

TEST_CASE("native memory is counted as pinned, small blocks by the piece") {
  NativeWorld world;
  CUdeviceptr small = 0;
  CUdeviceptr other = 0;
  CUdeviceptr large = 0;
  REQUIRE(world.memory.allocate(&small, {512}) == CUDA_SUCCESS);
  REQUIRE(world.memory.allocate(&other, {512}) == CUDA_SUCCESS);
  CHECK(world.memory.use().pinned == mebibytes(2));
  CHECK(world.books.asked == 1);
  REQUIRE(world.memory.allocate(&large, mebibytes(10)) == CUDA_SUCCESS);
  CHECK(world.memory.use().pinned == mebibytes(12));
  CHECK(world.memory.use().swappable == Bytes{});
  CHECK(world.memory.pin(mebibytes(1)) == CUDA_SUCCESS);
  CHECK(world.memory.use().pinned == mebibytes(13));
  const unsigned asked = world.books.asked;
  CHECK(world.memory.pin(kLargestAllocation) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(world.memory.pin({~0ull}) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(world.books.asked == asked);
  CHECK(world.memory.use().pinned == mebibytes(13));
  world.memory.unpin(mebibytes(1));
  CHECK(!world.memory.find(large));
  CHECK(world.memory.free(large) == CUDA_SUCCESS);
  CHECK(!world.memory.free(large));
  CHECK(world.memory.free(small) == CUDA_SUCCESS);
  CHECK(world.memory.free(other) == CUDA_SUCCESS);
  CHECK(world.memory.use().pinned == Bytes{});
  CHECK(world.books.last.pinned == Bytes{});
}

TEST_CASE("an allocation that the arbiter or the driver refuses is not counted") {
  NativeWorld world;
  world.books.limit = mebibytes(8).count;
  CUdeviceptr address = 0;
  CHECK(world.memory.allocate(&address, mebibytes(9)) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(world.memory.allocate(&address, {1ull << 62}) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(world.memory.use().pinned == Bytes{});
  driver.answer = CUDA_ERROR_ILLEGAL_ADDRESS;
  CHECK(world.memory.allocate(&address, mebibytes(4)) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(world.memory.use().pinned == Bytes{});
}

TEST_CASE("memory that the driver is still taking from another process is waited for") {
  NativeWorld world;
  CUdeviceptr address = 0;
  driver.failures = 3;
  CHECK(world.memory.allocate(&address, mebibytes(4)) == CUDA_SUCCESS);
  driver.failures = 1000;
  CHECK(world.memory.allocate(&address, mebibytes(4)) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(world.memory.use().pinned == mebibytes(4));
}

TEST_CASE("native memory is freed with its context, or stays if the driver refuses") {
  NativeWorld world;
  CUdeviceptr going = 0;
  CUdeviceptr staying = 0;
  REQUIRE(world.memory.allocate(&going, mebibytes(4)) == CUDA_SUCCESS);
  REQUIRE(world.memory.allocate(&staying, mebibytes(6)) == CUDA_SUCCESS);
  FakeDestruction refused([] { return CUDA_ERROR_INVALID_CONTEXT; });
  CHECK(world.memory.free_with(refused, {going, 12345}) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(world.memory.use().pinned == mebibytes(10));

  // As soon as the context is destroyed, the driver may return the same address for other memory.
  FakeDestruction destruction([&] {
    driver.next = going - mebibytes(2).count;
    CUdeviceptr again = 0;
    CHECK(world.memory.allocate(&again, mebibytes(2)) == CUDA_SUCCESS);
    CHECK(again == going);
    return CUDA_SUCCESS;
  });
  CHECK(world.memory.free_with(destruction, {going}) == CUDA_SUCCESS);
  CHECK(world.memory.use().pinned == mebibytes(8));
  CHECK(world.memory.free(going) == CUDA_SUCCESS);
  CHECK(world.memory.free(staying) == CUDA_SUCCESS);
  CHECK(world.memory.use().pinned == Bytes{});
}

TEST_CASE("a free that fails leaves the block") {
  NativeWorld world;
  CUdeviceptr address = 0;
  REQUIRE(world.memory.allocate(&address, mebibytes(4)) == CUDA_SUCCESS);
  driver.answer = CUDA_ERROR_LAUNCH_FAILED;
  CHECK(world.memory.free(address) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(world.memory.use().pinned == mebibytes(4));
  driver.answer = CUDA_SUCCESS;
  CHECK(world.memory.free(address) == CUDA_SUCCESS);
}

namespace {

// An arbiter that answers the first request only when a second thread has sent a request, or after 50 ms.
// NativeMemory must let only one thread at a time request growth.
class SlowBooks final : public Books {
 public:
  Answer grow() override {
    if (asked.fetch_add(1) == 0) {
      other = std::async(std::launch::async, [this] { return memory->pin(mebibytes(6)); });
      second.get_future().wait_for(std::chrono::milliseconds(50));
    } else {
      second.set_value();
    }
    return {memory->use().pinned <= mebibytes(8)};
  }
  void report(bool /*stuck*/) override {}
  bool capturing() override { return false; }
  bool idle() override { return true; }

  Memory* memory = nullptr;
  std::atomic<int> asked{0};
  std::promise<void> second;
  std::future<CUresult> other;
};

}  // namespace

TEST_CASE("a request of one thread is not refused because of another thread") {
  SlowBooks books;
  NativeMemory memory({.allocate = give, .free = take}, books);
  books.memory = &memory;
  CHECK(memory.pin(mebibytes(6)) == CUDA_SUCCESS);
  CHECK(books.other.get() == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(memory.use().pinned == mebibytes(6));
}

TEST_CASE("native memory counts the memory of a dead lender, which no longer counts it") {
  NativeWorld world;
  world.memory.pin_unasked(mebibytes(6));
  CHECK(world.memory.use().pinned == mebibytes(6));
  world.memory.unpin(mebibytes(6));
  CHECK(world.memory.use().pinned == Bytes{});
}
