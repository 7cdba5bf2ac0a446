// SPDX-License-Identifier: Apache-2.0
// Allocates very many blocks, and allocates blocks while memory is short. Arenas and handles have the same
// sizes as on a real GPU.
#include <atomic>
#include <catch2/catch.hpp>
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/interposer/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

constexpr Bytes kGranule = mebibytes(2);

struct GpuSized {
  explicit GpuSized(Bytes limit) : memory(device, budget, host, books, SwapOptions{}) {
    books.memory = &memory;
    books.limit = limit.count;
    memory.set_allowed(gibibytes(64));
  }
  FakeDevice device{gibibytes(64), kGranule};
  FakeBudget budget;
  FakeHost host;
  FakeBooks books;
  SwapMemory memory;
};

}  // namespace

TEST_CASE("a hundred thousand blocks share few handles, and cost few calls", "[crowd]") {
  GpuSized t(gibibytes(64));
  std::mt19937_64 random(1);
  std::vector<CUdeviceptr> blocks(100'000);
  Bytes asked;
  for (CUdeviceptr& block : blocks) {
    const Bytes size{256ull << random() % 5};  // 256 bytes to 4 KiB; each power of two is equally likely
    asked += size;
    REQUIRE(t.memory.allocate(&block, size) == CUDA_SUCCESS);
  }
  const std::size_t handles = t.memory.handles().size();
  CHECK(handles < 40);
  CHECK(t.device.calls() <= 5 * handles);  // for each handle: reserve, create, map, release, allow access
  CHECK(t.books.asked == handles);
  CHECK(t.memory.use().swappable.count < 2 * asked.count);

  // A turn calls the driver a few times for each handle: to wait, to unmap the handle, and to copy its parts.
  unsigned before = t.device.calls();
  t.memory.set_allowed({});
  REQUIRE(t.memory.evict());
  CHECK(t.device.calls() - before < 20 * handles);
  before = t.device.calls();
  t.memory.set_allowed(gibibytes(64));
  REQUIRE(t.memory.restore());
  CHECK(t.device.calls() - before < 20 * handles);

  // Each free waits for the GPU, as cuMemFree does. The driver is called again only when an arena becomes
  // empty.
  before = t.device.calls();
  for (const CUdeviceptr block : blocks) REQUIRE(t.memory.free(block) == CUDA_SUCCESS);
  CHECK(t.device.calls() - before <= blocks.size() + 2 * handles);
  CHECK(t.memory.use().swappable == Bytes{});
  CHECK(t.device.misuse().empty());
}

TEST_CASE("blocks of a caching allocator fill what may be allocated", "[crowd]") {
  GpuSized t(mebibytes(200));
  CUdeviceptr block = 0;
  for (int i = 0; i < 10; ++i) CHECK(t.memory.allocate(&block, mebibytes(20)) == CUDA_SUCCESS);
  CHECK(t.memory.allocate(&block, {512}) == CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("blocks that come and go at three quarters of the limit are never refused", "[crowd]") {
  // With a limit of a few dozen blocks of the largest size (128 MiB), one in fifteen random sequences has a
  // refusal. With 256 MiB, none of 600 sequences had a refusal.
  const Bytes limit = mebibytes(256);
  GpuSized t(limit);
  std::mt19937_64 random(GENERATE(1, 2, 3));
  std::vector<std::pair<CUdeviceptr, Bytes>> blocks;
  Bytes alive;
  for (int i = 0; i < 3000; ++i) {
    const Bytes size{(4ull << 20) >> random() % 14};
    while (alive.count + size.count > limit.count / 4 * 3) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      REQUIRE(t.memory.free(blocks.back().first) == CUDA_SUCCESS);
      alive -= blocks.back().second;
      blocks.pop_back();
    }
    blocks.emplace_back(0, size);
    REQUIRE(t.memory.allocate(&blocks.back().first, size) == CUDA_SUCCESS);
    alive += size;
  }
}

TEST_CASE("a refusal to one thread does not hinder another thread", "[crowd]") {
  GpuSized t(mebibytes(64));
  std::atomic<bool> done{false};
  std::thread greedy([&] {
    CUdeviceptr never = 0;
    while (!done) {
      t.memory.allocate(&never, mebibytes(128));
      t.memory.pin(mebibytes(128));
    }
  });
  unsigned refused = 0;
  for (int i = 0; i < 60; ++i) {
    CUdeviceptr block = 0;
    refused += t.memory.allocate(&block, i % 2 == 0 ? kibibytes(4) : mebibytes(16)) != CUDA_SUCCESS;
    t.memory.free(block);
  }
  done = true;
  greedy.join();
  CHECK(refused == 0);
}
