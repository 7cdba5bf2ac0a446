// SPDX-License-Identifier: Apache-2.0
// Application threads allocate, use and free while the service thread evicts and restores everything.
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/interposer/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

struct Outcome {
  std::atomic<unsigned> wrong{0};
  std::atomic<unsigned> failed{0};
};

struct Block {
  CUdeviceptr address;
  Bytes size;
  unsigned seed;
};

// Accesses a block's bytes only while it holds a shared lock of `gate`. The lock stands for the gate, inside
// which work on the GPU is submitted.
void use_memory(World& t, std::shared_mutex& gate, unsigned seed, Outcome& outcome) {
  std::mt19937 random(seed);
  std::vector<Block> blocks;
  for (unsigned round = 0; round < 150; ++round) {
    if (blocks.size() < 8 && random() % 3 != 0) {
      const Bytes size = random() % 4 == 0 ? kibibytes(64 + random() % 300) : Bytes{1 + random() % 20000};
      Block block{0, size, seed * 1000 + round};
      if (t.memory.allocate(&block.address, size) != CUDA_SUCCESS) {
        ++outcome.failed;
        continue;
      }
      const std::shared_lock inside(gate);
      fill(block.address, block.size, block.seed);
      blocks.push_back(block);
    } else if (!blocks.empty()) {
      const std::size_t chosen = random() % blocks.size();
      const Block block = blocks[chosen];
      {
        const std::shared_lock inside(gate);
        if (!holds(block.address, block.size, block.seed)) ++outcome.wrong;
        const std::optional<AddressRange> range = t.memory.find(block.address + block.size.count / 2);
        if (!range || range->base != block.address) ++outcome.wrong;
      }
      if (t.memory.free(block.address) != CUDA_SUCCESS) ++outcome.failed;
      blocks[chosen] = blocks.back();
      blocks.pop_back();
    }
  }
  for (const Block& block : blocks) {
    if (t.memory.free(block.address) != CUDA_SUCCESS) ++outcome.failed;
  }
}

// Runs an action once, during a call of the device.
class Interrupted final : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  CUresult create(Physical* physical, Bytes size, const CUmemAllocationProp* kind) override {
    if (const auto what = std::exchange(before_create, nullptr)) what();
    return FakeDevice::create(physical, size, kind);
  }
  CUresult unreserve(CUdeviceptr base, Bytes size) override {
    const CUresult result = FakeDevice::unreserve(base, size);
    if (const auto what = std::exchange(after_unreserve, nullptr)) what();
    return result;
  }
  std::function<void()> before_create;
  std::function<void()> after_unreserve;
};

using InterruptedWorld = WorldOn<Interrupted>;

}  // namespace

TEST_CASE("threads allocate and free while memory comes and goes", "[threads]") {
  World t;
  t.host.beside = true;  // the pool's work runs in separate threads
  std::shared_mutex gate;
  Outcome outcome;
  std::atomic<bool> done{false};
  std::thread service([&] {
    std::mt19937 random(7);
    while (!done) {
      const std::unique_lock closed(gate);
      for (int step = 0; step < 3; ++step) {
        t.memory.prepare_host(kibibytes(random() % 2000), 1 + static_cast<unsigned>(random() % 3));
        t.memory.set_allowed(kibibytes(random() % 2000));
        if (!t.memory.evict()) ++outcome.failed;
        t.memory.set_allowed(kibibytes(random() % 2000));
        t.memory.restore();
        t.memory.tend_freed();
        t.memory.tend();
      }
      t.memory.set_allowed(gibibytes(1));
      if (!t.memory.restore()) ++outcome.failed;
    }
  });
  std::vector<std::thread> threads;
  for (unsigned i = 1; i <= 3; ++i)
    threads.emplace_back(use_memory, std::ref(t), std::ref(gate), i, std::ref(outcome));
  for (std::thread& thread : threads) thread.join();
  done = true;
  service.join();
  CHECK(outcome.wrong == 0);
  CHECK(outcome.failed == 0);
  CHECK(t.memory.use().swappable == Bytes{});
  CHECK(t.memory.use().resident == Bytes{});
  CHECK(t.device.physical() == Bytes{});
  CHECK(t.device.reserved() == Bytes{});
  CHECK(t.device.misuse() == "");
}

TEST_CASE("threads make, map and unmap memory while it comes and goes", "[threads]") {
  World t;
  constexpr Bytes kSize = kibibytes(384);
  constexpr unsigned kThreads = 3;
  std::array<std::array<CUdeviceptr, 2>, kThreads> reserved;
  for (auto& places : reserved)
    for (CUdeviceptr& at : places) at = t.device.reserve_for_program(kSize);
  std::shared_mutex gate;
  Outcome outcome;
  std::atomic<bool> done{false};
  std::thread service([&] {
    std::mt19937 random(11);
    while (!done) {
      const std::unique_lock closed(gate);
      t.memory.set_allowed(kibibytes(random() % 1000));
      if (!t.memory.evict()) ++outcome.failed;
      t.memory.renew_access();
      t.memory.set_allowed(gibibytes(1));
      if (!t.memory.restore()) ++outcome.failed;
    }
  });
  const auto expect = [&outcome](bool good) { outcome.failed += good ? 0 : 1; };
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < kThreads; ++seed)
    threads.emplace_back([&, seed] {
      CUmemAccessDesc access = {};
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      const auto& places = reserved[seed];
      for (unsigned round = 0; round < 40; ++round) {
        ProgramMemory::Id id = 0;
        expect(t.program.create(&id, kSize, {}) == CUDA_SUCCESS);
        for (const CUdeviceptr at : places) {
          expect(t.program.map(at, kSize, id) == CUDA_SUCCESS);
          expect(t.program.set_access(at, &access, 1) == CUDA_SUCCESS);
        }
        {
          const std::shared_lock inside(gate);
          fill(places[0], kSize, seed * 1000 + round);
        }
        expect(t.program.release(id) == CUDA_SUCCESS);
        {
          const std::shared_lock inside(gate);
          if (!holds(places[1], kSize, seed * 1000 + round)) ++outcome.wrong;
        }
        for (const CUdeviceptr at : places) expect(t.program.unmap(at) == CUDA_SUCCESS);
      }
    });
  for (std::thread& thread : threads) thread.join();
  done = true;
  service.join();
  CHECK(outcome.wrong == 0);
  CHECK(outcome.failed == 0);
  CHECK(t.memory.use().footprint() == Bytes{});
  CHECK(t.memory.use().resident == Bytes{});
  CHECK(t.device.physical() == Bytes{});
  CHECK(t.device.misuse() == "");
}

TEST_CASE("a block at an address that was just given back stays known", "[threads]") {
  InterruptedWorld t;
  const Bytes size = kibibytes(256);
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  REQUIRE(t.memory.allocate(&first, size) == CUDA_SUCCESS);
  // Another thread may allocate after the driver has freed the memory and before the interposer has recorded
  // this.
  t.device.after_unreserve = [&] { CHECK(t.memory.allocate(&second, size) == CUDA_SUCCESS); };
  CHECK(t.memory.free(first) == CUDA_SUCCESS);
  REQUIRE(second == first);
  CHECK(t.memory.find(second));
  CHECK(t.memory.free(second) == CUDA_SUCCESS);
  CHECK(t.memory.use().swappable == Bytes{});
}

TEST_CASE("memory is not all there while another thread is making some", "[threads]") {
  InterruptedWorld t;
  std::atomic<bool> all_there{false};
  std::thread turn;
  bool too_early = false;
  t.device.before_create = [&] {
    turn = std::thread([&] { all_there = t.memory.restore(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    too_early = all_there;
  };
  CUdeviceptr block = 0;
  REQUIRE(t.memory.allocate(&block, kibibytes(256)) == CUDA_SUCCESS);
  turn.join();
  CHECK_FALSE(too_early);
  CHECK(all_there);
}

namespace {

// Pins memory in place, queries operands, and makes the memory accessible again, while other threads exchange
// handles.
void look_at_memory(World& t, unsigned seed, const std::atomic<bool>& done, Outcome& outcome) {
  std::mt19937 random(seed);
  while (!done) {
    CUdeviceptr block = 0;
    const Bytes size = kibibytes(20 + random() % 200);
    if (t.memory.allocate(&block, size) != CUDA_SUCCESS) {
      std::this_thread::yield();
      continue;
    }
    t.memory.away_memory()->operands(block + random() % size.count);
    const CUresult settled = t.memory.settle(block, size);
    if (settled != CUDA_SUCCESS && settled != CUDA_ERROR_NOT_READY) ++outcome.wrong;
    if (random() % 4 == 0) t.memory.renew_access();
    t.memory.away_memory()->handles();
    const auto [use, beyond, widening] = t.memory.reading();
    if (use.resident > use.swappable) ++outcome.wrong;
    if (t.memory.free(block) != CUDA_SUCCESS) ++outcome.failed;
  }
}

}  // namespace

TEST_CASE("threads allocate, free and settle while handles change places", "[threads]") {
  World t;
  t.host.beside = true;
  constexpr Bytes kWindow = kibibytes(1500);
  t.books.limit = kWindow.count;
  t.books.beyond_limit = mebibytes(64).count;
  std::shared_mutex gate;
  Outcome outcome;
  std::atomic<bool> done{false};
  std::thread turns([&] {
    std::mt19937 random(11);
    while (!done) {
      const std::unique_lock closed(gate);
      std::vector<CUdeviceptr> out;
      std::vector<CUdeviceptr> in;
      for (const AwayHandle& handle : t.memory.away_memory()->handles())
        if (random() % 2 == 0) (handle.away ? in : out).push_back(handle.address);
      t.memory.away_memory()->exchange(out, in);
      t.memory.away_memory()->room();
      if (random() % 8 != 0) continue;
      t.memory.set_allowed(kibibytes(random() % 2000));
      if (!t.memory.evict()) ++outcome.failed;
      t.memory.tend_freed();
      t.memory.tend();
      t.memory.set_allowed(gibibytes(1));
      if (!t.memory.restore()) ++outcome.failed;
    }
  });
  std::thread looker([&] { look_at_memory(t, 5, done, outcome); });
  std::vector<std::thread> threads;
  for (unsigned i = 1; i <= 3; ++i)
    threads.emplace_back(use_memory, std::ref(t), std::ref(gate), i, std::ref(outcome));
  for (std::thread& thread : threads) thread.join();
  done = true;
  turns.join();
  looker.join();
  CHECK(outcome.wrong == 0);
  CHECK(outcome.failed == 0);
  CHECK(t.books.windows != 0);
  CHECK(t.memory.use().footprint() == Bytes{});
  CHECK(t.memory.reading().beyond == Bytes{});
  CHECK(t.memory.use().resident == Bytes{});
  CHECK(t.device.physical() == Bytes{});
  CHECK(t.device.host_physical() == t.budget.uncharged());
  CHECK(t.device.misuse().empty());
}
