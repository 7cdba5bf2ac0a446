// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <functional>

#include "tests/unit/interposer/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

// Three large blocks of two handles each, and many small ones; all with contents.
struct Turn : World {
  struct Block {
    CUdeviceptr address;
    Bytes size;
    unsigned seed;
  };
  std::vector<Block> blocks;

  Turn() {
    for (unsigned i = 0; i < 3; ++i) add(kibibytes(256));
    for (unsigned i = 0; i < 20; ++i) add(kibibytes(3));
  }
  void add(Bytes size) {
    CUdeviceptr address = 0;
    REQUIRE(memory.allocate(&address, size) == CUDA_SUCCESS);
    blocks.push_back({address, size, static_cast<unsigned>(blocks.size() + 1)});
    fill(address, size, blocks.back().seed);
  }
  void check_contents() const {
    for (const Block& block : blocks) REQUIRE(holds(block.address, block.size, block.seed));
    REQUIRE(device.misuse().empty());
  }
  bool evict_to(Bytes allowed) {
    memory.set_allowed(allowed);
    return memory.evict();
  }
  bool restore_to(Bytes allowed) {
    memory.set_allowed(allowed);
    return memory.restore();
  }
};

}  // namespace

TEST_CASE("what is evicted comes back, at the same address", "[turns]") {
  Turn t;
  const Bytes footprint = t.memory.use().swappable;
  for (int i = 0; i < 3; ++i) {
    REQUIRE(t.evict_to({}));
    CHECK(t.memory.use().resident == Bytes{});
    CHECK(t.memory.use().swappable == footprint);
    CHECK(t.memory.use().host >= footprint);
    CHECK(t.device.physical() == Bytes{});
    CHECK(t.books.last.resident == Bytes{});
    CHECK_FALSE(t.books.stuck);
    REQUIRE(t.restore_to(footprint));
    CHECK(t.memory.use().resident == footprint);
    CHECK(t.device.physical() == footprint);
    t.check_contents();
  }
}

TEST_CASE("host memory is kept for the next turn, also when a restore is repeated", "[turns]") {
  Turn t;
  const Bytes footprint = t.memory.use().swappable;
  REQUIRE(t.evict_to({}));
  REQUIRE(t.restore_to(footprint));
  const Bytes kept = t.memory.use().host;
  CHECK(kept >= footprint);
  REQUIRE(t.restore_to(footprint));
  CHECK(t.memory.use().host == kept);
}

TEST_CASE("an eviction takes no more handles than it must, the least recently used first", "[turns]") {
  Turn t;
  const Bytes footprint = t.memory.use().swappable;
  REQUIRE(t.evict_to(footprint - kibibytes(129)));
  CHECK(t.memory.use().resident == footprint - kibibytes(256));
  CHECK_FALSE(t.memory.handles().empty());
  CHECK(t.device.looks() == 2);  // handles that stay on the GPU get no fingerprint
  for (const Handle& handle : t.memory.handles()) {
    const bool in_first_block = handle.address - t.blocks[0].address < t.blocks[0].size.count;
    CHECK(handle.evicted() == in_first_block);
  }
  CHECK(holds(t.blocks[1].address, t.blocks[1].size, t.blocks[1].seed));
  CHECK(t.evict_to(footprint));
  CHECK(t.memory.use().resident == footprint - kibibytes(256));
  REQUIRE(t.restore_to(footprint));
  t.check_contents();
}

TEST_CASE("a restore brings back no more memory than is allowed", "[turns]") {
  Turn t;
  const Bytes footprint = t.memory.use().swappable;
  REQUIRE(t.evict_to({}));
  for (Bytes allowed; allowed < footprint; allowed += kibibytes(64)) {
    CHECK_FALSE(t.restore_to(allowed));
    CHECK(t.memory.use().resident <= allowed);
    CHECK(t.device.physical() == t.memory.use().resident);
  }
  CHECK(t.restore_to(footprint));
  t.check_contents();
}

TEST_CASE("an eviction reports its progress to the arbiter", "[turns]") {
  Turn t;
  const unsigned before = t.books.reports;
  REQUIRE(t.evict_to({}));
  CHECK(t.books.reports >=
        before + 4);  // more than 768 KiB: a report after every 256 KiB, and one at the end
}

namespace {

// When the first copy from the GPU begins, records the pinned memory and calls `then`.
struct FirstCopy final : FakeDevice {
  using FakeDevice::FakeDevice;
  CUresult copy_out(Lane lane, std::byte* host, CUdeviceptr from, Bytes size) override {
    if (copies++ == 0) {
      pinned_before = pinned();
      if (then) then();
    }
    return FakeDevice::copy_out(lane, host, from, size);
  }
  unsigned copies = 0;
  Bytes pinned_before;
  std::function<void()> then;
};

// One block of five handles, 640 KiB.
struct FiveHandles : WorldOn<FirstCopy> {
  static constexpr Bytes kBlock = kibibytes(640);
  FiveHandles() {
    memory.set_allowed(kBlock);
    REQUIRE(memory.allocate(&block, kBlock) == CUDA_SUCCESS);
    fill(block, kBlock, 1);
  }
  CUdeviceptr block = 0;
};

}  // namespace

TEST_CASE("moved bytes are reported after every 256 KiB, and the rest at the end", "[turns]") {
  FiveHandles t;
  unsigned before = t.books.reports;
  t.memory.set_allowed({});
  REQUIRE(t.memory.evict());
  CHECK(t.books.reports == before + 3);  // reports at 256 KiB, at 512 KiB and at the end
  before = t.books.reports;
  t.memory.set_allowed(t.kBlock);
  REQUIRE(t.memory.restore());
  CHECK(t.books.reports == before + 3);
  t.memory.set_allowed(kibibytes(128));
  REQUIRE(t.memory.evict());
  before = t.books.reports;
  t.memory.set_allowed(t.kBlock);
  REQUIRE(t.memory.restore());
  CHECK(t.books.reports == before + 2);  // no report is left over from the earlier turn
}

TEST_CASE("the host memory for a whole eviction is allocated before the first copy", "[turns]") {
  FiveHandles t;
  t.memory.set_allowed({});
  REQUIRE(t.memory.evict());
  CHECK(t.device.pinned_before >= t.kBlock);
  CHECK(t.host.started > 0);
}

TEST_CASE("an eviction allocates no more host memory than it needs", "[turns]") {
  FiveHandles t;
  t.memory.set_allowed(kibibytes(384));
  REQUIRE(t.memory.evict());
  CHECK(t.device.pinned() == kibibytes(256));
}

TEST_CASE("if the limit falls during an eviction, it evicts just so much more", "[turns]") {
  FiveHandles t;
  t.memory.set_allowed(kibibytes(512));
  t.device.then = [&t] { t.memory.set_allowed(kibibytes(384)); };
  REQUIRE(t.memory.evict());
  CHECK(t.memory.use().resident == kibibytes(384));
  CHECK(t.device.looks() == 2);
  t.memory.set_allowed(kibibytes(256));
  REQUIRE(t.memory.evict());
  CHECK(t.memory.use().resident == kibibytes(256));
  CHECK(t.device.looks() == 3);
}

TEST_CASE("if the limit rises during an eviction, the rest stays on the GPU", "[turns]") {
  FiveHandles t;
  t.memory.set_allowed({});
  t.device.then = [&t] { t.memory.set_allowed(kibibytes(512)); };
  REQUIRE(t.memory.evict());
  CHECK(t.memory.use().resident == kibibytes(512));
  for (const Handle& handle : t.memory.handles()) CHECK_FALSE(handle.busy);
  REQUIRE(t.memory.restore() == false);
  t.memory.set_allowed(t.kBlock);
  REQUIRE(t.memory.restore());
  CHECK(holds(t.block, t.kBlock, 1));
}

TEST_CASE("without evicted memory, watch_host() requires no restore", "[turns]") {
  Turn t;
  t.budget.is_tight = t.budget.is_used_up = true;
  CHECK_FALSE(t.memory.watch_host());
  t.budget.is_tight = t.budget.is_used_up = false;
  CHECK(t.evict_to({}));  // the host pool may still grow
}

TEST_CASE("a restore that changes nothing is not reported", "[turns]") {
  Turn t;
  REQUIRE(t.evict_to({}));
  const unsigned before = t.books.reports;
  CHECK_FALSE(t.restore_to(kibibytes(3)));
  CHECK_FALSE(t.memory.restore());
  CHECK(t.books.reports == before);
  CHECK_FALSE(t.restore_to(kibibytes(200)));
  CHECK(t.books.reports == before + 1);
}

TEST_CASE("the largest number may be allowed", "[turns]") {
  Turn t;
  REQUIRE(t.evict_to({}));
  REQUIRE(t.restore_to({~0ull}));
  CHECK(t.evict_to({~0ull}));
  CHECK(t.memory.use().resident == t.memory.use().swappable);
  t.check_contents();
}

TEST_CASE("without host room all stays resident, and the arbiter is told", "[turns]") {
  Turn t;
  const MemoryUse before = t.memory.use();
  t.budget.left = {};
  CHECK_FALSE(t.evict_to({}));
  CHECK(t.books.stuck);
  CHECK(t.memory.use().resident == before.resident);
  t.check_contents();

  SECTION("with some room, some goes") {
    t.budget.left = kibibytes(200);  // each query finds room for one slab, which holds one handle
    CHECK(t.evict_to({}));
    CHECK(t.memory.use().host == before.swappable);
  }
  t.budget.left = gibibytes(1);
  CHECK(t.evict_to({}));
  CHECK_FALSE(t.books.stuck);
  CHECK(t.restore_to(before.swappable));
  t.check_contents();
}

TEST_CASE("a context that cannot be entered makes eviction stuck, and loses nothing", "[turns]") {
  Turn t;
  const Bytes footprint = t.memory.use().swappable;
  t.device.fail_call(1, CUDA_ERROR_INVALID_CONTEXT);
  CHECK_FALSE(t.evict_to({}));
  CHECK(t.books.stuck);
  REQUIRE(t.evict_to({}));
  t.device.fail_call(1, CUDA_ERROR_INVALID_CONTEXT);
  CHECK_FALSE(t.restore_to(footprint));
  REQUIRE(t.restore_to(footprint));
  t.check_contents();
}

TEST_CASE("a restore that finds the memory not yet free is tried again", "[turns]") {
  Turn t;
  const Bytes footprint = t.memory.use().swappable;
  REQUIRE(t.evict_to({}));
  t.device.set_out_of_memory(true);
  CHECK_FALSE(t.restore_to(footprint));
  CHECK(t.memory.use().resident == Bytes{});
  CHECK(t.books.last.resident == Bytes{});
  t.device.set_out_of_memory(false);
  CHECK(t.memory.restore());
  t.check_contents();
}

TEST_CASE("if the device is lost while memory is evicted, the program gets the error", "[turns]") {
  World t;
  CUdeviceptr address = 0;
  REQUIRE(t.memory.allocate(&address, kibibytes(512)) == CUDA_SUCCESS);
  t.memory.set_allowed(kibibytes(128));
  REQUIRE(t.memory.evict());
  t.device.lose();
  CHECK_FALSE(t.memory.restore());  // no restore has been ordered yet
  t.memory.set_allowed(gibibytes(1));
  CHECK(t.memory.restore());
  CHECK(t.memory.use().swappable == kibibytes(128));
  CHECK(t.memory.use().resident == kibibytes(128));
  CHECK(t.books.last.swappable == kibibytes(128));
  t.memory.set_allowed({});
  CHECK_FALSE(t.memory.evict());
  CHECK(t.books.stuck);
  CHECK(t.memory.restore());
}

TEST_CASE("a process that ends is not stuck", "[turns]") {
  Turn t;
  t.device.end();
  CHECK_FALSE(t.evict_to({}));
  CHECK_FALSE(t.books.stuck);
}

TEST_CASE("evicted memory is freed without the GPU", "[turns]") {
  Turn t;
  REQUIRE(t.evict_to({}));
  const unsigned synchronizations = t.device.synchronizations();
  for (const Turn::Block& block : t.blocks) CHECK(t.memory.free(block.address) == CUDA_SUCCESS);
  CHECK(t.device.synchronizations() == synchronizations);
  CHECK(t.memory.use().swappable == Bytes{});
  CHECK(t.device.reserved() == Bytes{});
  CHECK(t.memory.restore());
  CHECK(t.memory.use().host <= kibibytes(1024));
}

TEST_CASE("memory allocated while all is evicted comes with the next turn", "[turns]") {
  Turn t;
  REQUIRE(t.evict_to({}));
  CUdeviceptr large = 0;
  CUdeviceptr small = 0;
  CHECK(t.memory.allocate(&large, kibibytes(100)) == CUDA_SUCCESS);
  CHECK(t.memory.allocate(&small, kibibytes(1)) == CUDA_SUCCESS);
  CHECK(t.device.physical() == Bytes{});
  REQUIRE(t.restore_to(t.memory.use().swappable));
  fill(large, kibibytes(100), 91);
  fill(small, kibibytes(1), 92);
  REQUIRE(t.evict_to({}));
  REQUIRE(t.restore_to(t.memory.use().swappable));
  CHECK(holds(large, kibibytes(100), 91));
  CHECK(holds(small, kibibytes(1), 92));
  t.check_contents();
}

TEST_CASE("memory never written needs no copy", "[turns]") {
  World t;
  t.memory.set_allowed({});
  CUdeviceptr address = 0;
  REQUIRE(t.memory.allocate(&address, kibibytes(256)) == CUDA_SUCCESS);
  CHECK(t.memory.evict());
  t.memory.set_allowed(kibibytes(256));
  CHECK(t.memory.restore());
  CHECK(t.memory.use().host == Bytes{});
}

TEST_CASE("host memory is kept for the next turn, however often a restore is told", "[turns]") {
  Turn t;
  const Bytes footprint = t.memory.use().swappable;
  REQUIRE(t.evict_to({}));
  const Bytes host = t.memory.use().host;
  REQUIRE(host >= footprint);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(t.restore_to(footprint));
    CHECK(t.memory.use().host == host);
  }
}

TEST_CASE("host memory is kept for the next turn, and shrinks with the footprint", "[turns]") {
  Turn t;
  const Bytes footprint = t.memory.use().swappable;
  REQUIRE(t.evict_to({}));
  const Bytes host = t.memory.use().host;
  REQUIRE(t.restore_to(footprint));
  CHECK(t.memory.use().host == host);

  for (unsigned i = 0; i < 3; ++i) CHECK(t.memory.free(t.blocks[i].address) == CUDA_SUCCESS);
  REQUIRE(t.evict_to({}));
  REQUIRE(t.restore_to(footprint));
  CHECK(t.memory.use().host < host);
  CHECK(t.memory.use().host.count <= kibibytes(512).count);
}

TEST_CASE("idle host memory goes back when the job is short of it, or nobody expects to need it", "[turns]") {
  Turn t;
  const Bytes footprint = t.memory.use().swappable;
  REQUIRE(t.evict_to({}));
  t.memory.tend();
  CHECK(t.memory.use().host >= footprint);
  t.memory.prepare_host(kibibytes(256), 1);
  REQUIRE(t.restore_to(footprint));
  t.memory.tend();
  CHECK(t.memory.use().host >= footprint);
  SECTION("short") {
    t.budget.is_tight = true;
    t.memory.tend();
  }
  SECTION("not needed any more") {
    t.memory.prepare_host({}, 1);
    t.memory.tend();
  }
  CHECK(t.memory.use().host == Bytes{});
  CHECK(t.device.pinned() == Bytes{});
  REQUIRE(t.evict_to({}));
  t.budget.is_tight = true;
  t.memory.tend();
  REQUIRE(t.restore_to(footprint));
  t.check_contents();
}

TEST_CASE("the room of a turn's largest eviction is kept, not that of its last", "[turns]") {
  FiveHandles t;
  t.device.set_blind(true);  // no clean copies
  t.memory.set_allowed({});
  REQUIRE(t.memory.evict());
  const Bytes pinned = t.device.pinned();
  t.memory.set_allowed(kibibytes(512));
  CHECK_FALSE(t.memory.restore());
  REQUIRE(t.memory.evict());
  t.memory.set_allowed(t.kBlock);
  REQUIRE(t.memory.restore());
  CHECK(t.device.pinned() == pinned);
  CHECK(holds(t.block, t.kBlock, 1));
}

TEST_CASE("an eviction leaves the host memory that the job is just taking for itself", "[turns]") {
  using namespace std::chrono_literals;
  FiveHandles t;
  t.host.time = 100s;
  t.memory.set_allowed(kibibytes(384));
  REQUIRE(t.memory.evict());
  t.budget.left = mebibytes(20);
  t.host.time += 2s;
  CHECK_FALSE(t.memory.watch_host());
  t.host.time += 100ms;
  t.budget.left = mebibytes(10);  // the job takes a hundred MiB a second
  CHECK_FALSE(t.memory.watch_host());
  t.memory.set_allowed({});
  CHECK_FALSE(t.memory.evict());
  CHECK(t.memory.last_eviction().no_room);
}
