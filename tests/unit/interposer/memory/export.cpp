// SPDX-License-Identifier: Apache-2.0
// Memory that the program has created for export: its handles become one before it is exported.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/interposer/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

constexpr Bytes kEach = kibibytes(128);  // size of a handle
constexpr Bytes kThree{3 * kEach.count};
constexpr unsigned kSeed = 7;

CUmemAllocationProp for_export() {
  CUmemAllocationProp kind = {};
  kind.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return kind;
}

// Acts like another thread before some calls of the driver, and records who may access each address.
class Watched final : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  CUresult create(Physical* physical, Bytes size, const CUmemAllocationProp* kind) override {
    last_kind = kind;
    if (before_create && size == kThree) before_create();
    return FakeDevice::create(physical, size, kind);
  }
  CUresult set_access(CUdeviceptr address, Bytes size, const std::vector<CUmemAccessDesc>& access) override {
    {
      const std::lock_guard lock(mutex);
      accesses[address] = access;
    }
    return FakeDevice::set_access(address, size, access);
  }
  CUresult retain(Physical* physical, CUdeviceptr address) override {
    if (const auto what = std::exchange(before_retain, nullptr)) what();
    return FakeDevice::retain(physical, address);
  }
  CUresult wait(Lane lane) override {
    if (waits_refused == 0) return FakeDevice::wait(lane);
    --waits_refused;
    return CUDA_ERROR_UNKNOWN;
  }
  std::function<void()> before_create;  // called before the memory of the single handle is created
  std::function<void()> before_retain;  // called once, for example while memory is being mapped
  const CUmemAllocationProp* last_kind = nullptr;
  unsigned waits_refused = 0;
  std::mutex mutex;  // guards accesses, as several threads may set access
  std::map<CUdeviceptr, std::vector<CUmemAccessDesc>> accesses;
};

// Memory for export that consists of three handles, mapped at two addresses, and other memory.
struct Exporting : WorldOn<Watched> {
  ProgramMemory::Id id = 0;
  CUdeviceptr views[2]{};
  CUdeviceptr other = 0;
  CUmemGenericAllocationHandle real = 0;

  Exporting() {
    books.oversize_permitted = true;
    REQUIRE(program.create(&id, kThree, for_export()) == CUDA_SUCCESS);
    for (CUdeviceptr& view : views) view = mapped();
    fill(views[0], kThree, kSeed);
    REQUIRE(memory.allocate(&other, kThree) == CUDA_SUCCESS);
    fill(other, kThree, kSeed + 1);
  }
  CUdeviceptr mapped() {
    const CUdeviceptr at = device.reserve_for_program(kThree);
    REQUIRE(program.map(at, kThree, id) == CUDA_SUCCESS);
    CUmemAccessDesc access = {};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    access.location.id = 3;
    REQUIRE(program.set_access(at, &access, 1) == CUDA_SUCCESS);
    return at;
  }
  std::size_t handles() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(memory.handles(), [](const Handle& handle) { return handle.kind != nullptr; }));
  }
  bool all_usable() const { return std::ranges::all_of(memory.handles(), &Handle::usable); }
  bool intact() const {
    return std::ranges::all_of(views, [](CUdeviceptr view) { return holds(view, kThree, kSeed); }) &&
           holds(other, kThree, kSeed + 1);
  }
  void check_counts() const {
    Bytes mapped;
    for (const Handle& handle : memory.handles()) {
      REQUIRE_FALSE(handle.busy);
      if (handle.mapped && !handle.away) mapped += handle.size;
    }
    REQUIRE(device.physical() == mapped);
    const MemoryUse use = memory.use();
    REQUIRE(use.footprint() == kThree + kThree);
    REQUIRE(use.resident + use.pinned == mapped);
    REQUIRE(device.misuse() == "");
  }
  // Exports the memory as the hooks do.
  CUresult exported() {
    for (unsigned attempts = 0; attempts < 3; ++attempts) {
      const CUresult result = program.settle(id, &real).value_or(CUDA_ERROR_INVALID_VALUE);
      if (result != CUDA_ERROR_NOT_READY) return result;
      const CUresult merged = memory.merge(id);
      if (merged != CUDA_SUCCESS && merged != CUDA_ERROR_NOT_READY) return merged;
    }
    return CUDA_ERROR_NOT_READY;
  }
  // Frees everything.
  void finish() {
    for (const CUdeviceptr view : views) CHECK(program.unmap(view) == CUDA_SUCCESS);
    CHECK(program.release(id) == CUDA_SUCCESS);
    CHECK_FALSE(program.properties(id));
    CHECK(memory.free(other) == CUDA_SUCCESS);
    if (real != 0) {
      CHECK(device.physical() == kThree);  // the caller's reference keeps the memory
      CHECK(device.release(real) == CUDA_SUCCESS);
    }
    CHECK(device.physical() == Bytes{});
    CHECK(memory.use().footprint() == Bytes{});
    CHECK(device.misuse() == "");
    memory.prepare_host({}, 1);
    memory.tend();
    CHECK(device.pinned() == Bytes{});
  }
};

}  // namespace

TEST_CASE("exported memory becomes one handle that stays, at all its addresses", "[export]") {
  Exporting t;
  CHECK(t.handles() == 3);
  CHECK(t.program.properties(t.id)->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  CHECK_FALSE(t.program.settle(ProgramMemory::Id{42}, &t.real));
  CHECK(t.program.settle(t.id, &t.real) == CUDA_ERROR_NOT_READY);
  REQUIRE(t.memory.to_merge(t.id));
  CHECK(t.memory.to_merge(t.views[1] + kThree.count - 1)->size == kThree);
  CHECK_FALSE(t.memory.to_merge(t.other));
  t.device.accesses.clear();
  REQUIRE(t.exported() == CUDA_SUCCESS);
  CHECK(t.handles() == 1);
  CHECK_FALSE(t.memory.to_merge(t.id));
  CHECK(t.memory.use().pinned == kThree);
  CHECK(t.books.last.pinned == kThree);
  REQUIRE(t.device.last_kind != nullptr);
  CHECK(t.device.last_kind->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  for (const CUdeviceptr at : {t.id, t.views[0], t.views[1]}) CHECK(t.device.mapped_at(at) == t.real);
  for (const CUdeviceptr view : t.views) {
    REQUIRE(t.device.accesses[view].size() == 1);
    CHECK(t.device.accesses[view].front().location.id == 3);
  }
  CHECK(t.intact());
  t.check_counts();
  CHECK(t.memory.merge(t.id) == CUDA_SUCCESS);  // does nothing

  // The memory stays over turns, while other memory leaves.
  t.memory.set_allowed({});
  REQUIRE(t.memory.evict());
  CHECK(t.device.physical() == kThree);
  CHECK(holds(t.views[0], kThree, kSeed));
  t.memory.set_allowed(gibibytes(1));
  REQUIRE(t.memory.restore());
  CHECK(t.device.mapped_at(t.views[1]) == t.real);
  // A second export, and views that come and go later.
  CUmemGenericAllocationHandle again = 0;
  REQUIRE(t.program.settle(t.id, &again) == CUDA_SUCCESS);
  CHECK(again == t.real);
  CHECK(t.device.release(again) == CUDA_SUCCESS);
  const CUdeviceptr third = t.mapped();
  CHECK(holds(third, kThree, kSeed));
  CHECK(t.program.unmap(third) == CUDA_SUCCESS);
  CHECK(t.intact());
  t.finish();
}

TEST_CASE("memory that is not for export keeps its handles", "[export]") {
  Exporting t;
  ProgramMemory::Id private_id = 0;
  REQUIRE(t.program.create(&private_id, kThree, {}) == CUDA_SUCCESS);
  CHECK_FALSE(t.memory.to_merge(private_id));
  CHECK(t.program.settle(private_id, &t.real) == CUDA_ERROR_INVALID_VALUE);
  CHECK(t.memory.merge(private_id) == CUDA_SUCCESS);
  CHECK(t.memory.merge(t.other) == CUDA_SUCCESS);
  CHECK(t.memory.merge(42) == CUDA_SUCCESS);
  CHECK(t.memory.handles().size() == 9);
  CHECK(t.program.release(private_id) == CUDA_SUCCESS);
  t.finish();
}

TEST_CASE("a part of memory for export is pinned with all of it", "[export]") {
  Exporting t;
  CHECK(t.memory.settle(t.views[1] + kEach.count, kEach) == CUDA_ERROR_NOT_READY);
  REQUIRE(t.memory.merge(t.views[1] + kEach.count) == CUDA_SUCCESS);
  CHECK(t.memory.settle(t.views[1] + kEach.count, kEach) == CUDA_SUCCESS);
  CHECK(t.memory.use().pinned == kThree);
  REQUIRE(t.exported() == CUDA_SUCCESS);
  CHECK(t.intact());
  t.finish();
}

TEST_CASE("memory that is evicted or unmapped is exported with its contents", "[export]") {
  Exporting t;
  const bool partly = GENERATE(false, true);
  t.memory.set_allowed(partly ? Bytes{5 * kEach.count} : Bytes{});
  REQUIRE(t.memory.evict());
  CHECK(t.memory.merge(t.id) == CUDA_ERROR_NOT_READY);
  CHECK(t.program.settle(t.id, &t.real) == CUDA_ERROR_NOT_READY);
  t.check_counts();
  t.memory.set_allowed(gibibytes(1));
  REQUIRE(t.memory.restore());  // leaves clean copies
  for (const CUdeviceptr view : t.views) REQUIRE(t.program.unmap(view) == CUDA_SUCCESS);
  REQUIRE(t.exported() == CUDA_SUCCESS);
  t.check_counts();
  for (CUdeviceptr& view : t.views) view = t.mapped();
  CHECK(t.intact());
  t.finish();
}

TEST_CASE("uniform contents survive the export", "[export]") {
  Exporting t;
  std::fill_n(bytes_at(t.views[0]), 2 * kEach.count, std::byte{0x11});
  t.memory.set_allowed({});
  REQUIRE(t.memory.evict());
  t.memory.set_allowed(gibibytes(1));
  REQUIRE(t.memory.restore());
  REQUIRE(t.exported() == CUDA_SUCCESS);
  CHECK(std::all_of(bytes_at(t.views[1]), bytes_at(t.views[1]) + 2 * kEach.count,
                    [](std::byte byte) { return byte == std::byte{0x11}; }));
  t.finish();
}

TEST_CASE("without room the export fails, and the memory stays in several handles", "[export]") {
  Exporting t;
  SECTION("no host memory for the third handle") { t.host.fail_from = 2; }
  SECTION("no device memory for the single handle") {
    t.device.before_create = [&] { t.device.set_out_of_memory(true); };
  }
  CHECK(t.exported() == CUDA_ERROR_OUT_OF_MEMORY);
  t.check_counts();
  CHECK(t.handles() == 3);
  CHECK(t.memory.use().pinned == Bytes{});
  t.device.before_create = nullptr;
  t.device.set_out_of_memory(false);
  t.memory.restore();
  CHECK(t.all_usable());
  CHECK(t.intact());
  t.host.fail_from = 0;
  CHECK(t.exported() == CUDA_SUCCESS);
  CHECK(t.intact());
  t.finish();
}

TEST_CASE("clean copies give their host memory to an export", "[export]") {
  Exporting t;
  t.memory.set_allowed({});
  REQUIRE(t.memory.evict());
  t.memory.set_allowed(gibibytes(1));
  REQUIRE(t.memory.restore());
  t.budget.left = {};
  CHECK(t.exported() == CUDA_SUCCESS);
  CHECK(t.intact());
  t.finish();
}

TEST_CASE("an export that the arbiter refuses leaves memory that can be evicted", "[export]") {
  Exporting t;
  t.books.settles = false;
  CHECK(t.exported() == CUDA_ERROR_OUT_OF_MEMORY);
  t.check_counts();
  t.memory.set_allowed({});
  REQUIRE(t.memory.evict());
  CHECK(t.device.physical() == Bytes{});
  t.memory.set_allowed(gibibytes(1));
  REQUIRE(t.memory.restore());
  CHECK(t.intact());
  t.finish();
}

TEST_CASE("no failure of the driver during an export loses a byte", "[export]") {
  const unsigned more = GENERATE(0u, 1u);
  bool failed = true;
  unsigned succeeded = 0;
  unsigned n = 1;
  for (; failed; ++n) {
    CAPTURE(n, more);
    Exporting t;
    t.device.fail_call(n, CUDA_ERROR_UNKNOWN, more);
    const CUresult result = t.exported();
    failed = t.device.has_failed();
    t.check_counts();
    succeeded += result == CUDA_SUCCESS ? 1 : 0;
    for (unsigned attempts = 0; attempts < 9 && !t.all_usable(); ++attempts) t.memory.restore();
    t.device.fail_call(0);
    REQUIRE(t.memory.restore());
    REQUIRE(t.all_usable());
    REQUIRE(t.intact());
    t.check_counts();
    if (result != CUDA_SUCCESS) REQUIRE(t.exported() == CUDA_SUCCESS);
    REQUIRE(t.intact());
    t.check_counts();
    t.finish();
  }
  CHECK(n > 30);
  CHECK(succeeded < n / 2);
}

TEST_CASE("memory for export is one handle in a process that may not be larger than the GPU", "[export]") {
  WorldOn<Watched> t;
  ProgramMemory::Id id = 0;
  REQUIRE(t.program.create(&id, kThree, for_export()) == CUDA_SUCCESS);
  CHECK(t.memory.handles().size() == 1);
}

TEST_CASE("a copy that may still be running keeps the memory and the host memory that it uses", "[export]") {
  for (unsigned refused = 1; refused <= 9; ++refused) {
    CAPTURE(refused);
    Exporting t;
    // The driver refuses the next waits: these would wait for the copy to the single handle.
    t.device.before_create = [&] { t.device.waits_refused = refused; };
    CHECK(t.exported() != CUDA_SUCCESS);
    t.check_counts();
    for (unsigned attempts = 0; attempts < 20 && !t.all_usable(); ++attempts) t.memory.restore();
    REQUIRE(t.all_usable());
    CHECK(t.intact());
    t.device.before_create = nullptr;
    CHECK(t.exported() == CUDA_SUCCESS);
    CHECK(t.intact());
    t.finish();
  }
}

TEST_CASE("memory whose unmap failed in the middle is exported", "[export]") {
  for (unsigned n = 1; n <= 3; ++n) {
    CAPTURE(n);
    Exporting t;
    t.device.fail_call(n);
    REQUIRE(t.program.unmap(t.views[0]) == CUDA_ERROR_UNKNOWN);
    REQUIRE(t.exported() == CUDA_SUCCESS);
    CHECK(t.intact());
    t.check_counts();
    t.finish();
  }
}

// The program may release its last reference while its memory is being exported.
TEST_CASE("memory that is released during an export is exported, and then goes", "[export]") {
  Exporting t;
  for (const CUdeviceptr view : t.views) REQUIRE(t.program.unmap(view) == CUDA_SUCCESS);
  REQUIRE(t.memory.merge(t.id) == CUDA_SUCCESS);
  t.books.when_asked = [&] {
    t.books.when_asked = nullptr;
    CHECK(t.program.release(t.id) == CUDA_SUCCESS);
  };
  REQUIRE(t.program.settle(t.id, &t.real) == CUDA_SUCCESS);
  CHECK_FALSE(t.program.properties(t.id));
  CHECK(t.device.physical() == kThree + kThree);
  CHECK(t.memory.use().pinned == Bytes{});
  CHECK(t.device.release(t.real) == CUDA_SUCCESS);
  CHECK(t.device.physical() == kThree);
}

TEST_CASE("the turn thread waits for a thread that maps the memory", "[export]") {
  Exporting t;
  const CUdeviceptr at = t.device.reserve_for_program(kThree);
  std::future<CUresult> merged;
  t.device.before_retain = [&] {
    merged = std::async(std::launch::async, [&] { return t.memory.merge(t.id); });
    std::this_thread::yield();
    CHECK(t.handles() == 3);
  };
  CHECK(t.program.map(at, kThree, t.id) == CUDA_SUCCESS);
  CHECK(merged.get() == CUDA_SUCCESS);
  CHECK(t.handles() == 1);
  CHECK(t.exported() == CUDA_SUCCESS);
  CHECK(t.device.mapped_at(at) == t.real);
  CHECK(t.program.unmap(at) == CUDA_SUCCESS);
  t.finish();
}

// Threads map, unmap, retain, release and export the memory while it becomes one handle.
TEST_CASE("threads that use memory while it becomes one handle lose no byte", "[export]") {
  for (unsigned round = 0; round < 20; ++round) {
    Exporting t;
    std::atomic<bool> done{false};
    std::vector<std::thread> threads;
    std::atomic<unsigned> failures{0};
    std::vector<CUdeviceptr> places;
    for (unsigned i = 0; i < 2; ++i) places.push_back(t.device.reserve_for_program(kThree));
    for (const CUdeviceptr at : places)
      threads.emplace_back([&, at] {
        CUmemAccessDesc access = {};
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        while (!done) {
          const bool good = t.program.map(at, kThree, t.id) == CUDA_SUCCESS &&
                            t.program.set_access(at, &access, 1) == CUDA_SUCCESS &&
                            t.program.retain(at + kEach.count) == t.id &&
                            t.program.release(t.id) == CUDA_SUCCESS && t.program.unmap(at) == CUDA_SUCCESS;
          if (!good) ++failures;
        }
      });
    for (unsigned i = 0; i < 2; ++i)
      threads.emplace_back([&] {
        CUmemGenericAllocationHandle own = 0;
        CUresult result = CUDA_ERROR_NOT_READY;
        while (result == CUDA_ERROR_NOT_READY)
          result = t.program.settle(t.id, &own).value_or(CUDA_ERROR_INVALID_VALUE);
        if (result != CUDA_SUCCESS || t.device.release(own) != CUDA_SUCCESS) ++failures;
      });
    while (t.memory.to_merge(t.id)) {
      const CUresult result = t.memory.merge(t.id);  // this is the turn thread
      if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) ++failures;
    }
    threads[2].join();
    threads[3].join();
    done = true;
    threads[0].join();
    threads[1].join();
    REQUIRE(failures == 0);
    REQUIRE(t.memory.use().pinned == kThree);
    REQUIRE(t.intact());
    t.check_counts();
    t.finish();
  }
}
