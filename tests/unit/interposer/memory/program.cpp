// SPDX-License-Identifier: Apache-2.0
// Memory that the program itself creates, maps and makes accessible.
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <vector>

#include "tests/unit/interposer/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

constexpr Bytes kHandle = kibibytes(128);
constexpr Bytes kSize{3 * kHandle.count};

CUmemAccessDesc access_of(int device, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = flags;
  return access;
}

// Records the kinds of memory that were requested, and the access rights that were last set at each address.
class NotingDevice final : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  CUresult create(Physical* physical, Bytes size, const CUmemAllocationProp* kind) override {
    kinds.push_back(kind);
    return FakeDevice::create(physical, size, kind);
  }
  CUresult set_access(CUdeviceptr address, Bytes size, const std::vector<CUmemAccessDesc>& access) override {
    accesses[address] = access;
    return FakeDevice::set_access(address, size, access);
  }
  CUresult retain(Physical* physical, CUdeviceptr address) override {
    if (const auto what = std::exchange(before_retain, nullptr)) what();
    return FakeDevice::retain(physical, address);
  }
  std::function<void()> before_retain;
  std::vector<const CUmemAllocationProp*> kinds;
  std::map<CUdeviceptr, std::vector<CUmemAccessDesc>> accesses;
};

struct Program : WorldOn<NotingDevice> {
  using Id = ProgramMemory::Id;

  Id made(Bytes size = kSize, const CUmemAllocationProp& kind = {}) {
    Id id = 0;
    REQUIRE(program.create(&id, size, kind) == CUDA_SUCCESS);
    return id;
  }
  CUresult set_access(CUdeviceptr at, int of = 0) {
    const CUmemAccessDesc access = access_of(of);
    return program.set_access(at, &access, 1);
  }
  CUdeviceptr mapped(Id id) {
    const CUdeviceptr at = device.reserve_for_program(kSize);
    REQUIRE(program.map(at, kSize, id) == CUDA_SUCCESS);
    REQUIRE(set_access(at) == CUDA_SUCCESS);
    return at;
  }
  // Returns the number of handles that are mapped at `at`.
  unsigned there(CUdeviceptr at) const {
    unsigned count = 0;
    for (std::uint64_t offset = 0; offset < kSize.count; offset += kHandle.count)
      count += device.mapped_at(at + offset) != 0 ? 1 : 0;
    return count;
  }
  std::size_t views() const {
    std::size_t count = 0;
    for (const Handle& handle : memory.handles()) count += handle.views.size();
    return count;
  }
  bool evict(Bytes allowed = {}) {
    memory.set_allowed(allowed);
    return memory.evict();
  }
  bool restore() {
    memory.set_allowed(gibibytes(1));
    return memory.restore();
  }
  // Returns true if the counted memory agrees with the device.
  bool agrees() const { return device.physical() == memory.use().resident && device.misuse().empty(); }
  bool gone() const {
    return memory.use().footprint() == Bytes{} && memory.use().resident == Bytes{} && agrees();
  }
};

// A program that has mapped its memory at two places and written to it.
struct MappedTwice : Program {
  explicit MappedTwice(unsigned seed) { fill(first, kSize, seed); }

  const Id id = made();
  const CUdeviceptr first = mapped(id);
  const CUdeviceptr second = mapped(id);
};

}  // namespace

TEST_CASE("program memory is whole granules, of the kind that was asked for", "[program]") {
  Program t;
  Program::Id id = 0;
  CHECK(t.program.create(nullptr, kSize, {}) == CUDA_ERROR_INVALID_VALUE);
  CHECK(t.program.create(&id, {}, {}) == CUDA_ERROR_INVALID_VALUE);
  CHECK(t.program.create(&id, kSize + Bytes{1}, {}) == CUDA_ERROR_INVALID_VALUE);
  CHECK(t.books.asked == 0);
  CHECK_FALSE(t.program.properties(id));

  CUmemAllocationProp kind = {};
  kind.location.id = 7;
  id = t.made(kSize, kind);
  CHECK(t.memory.use().resident == kSize);
  CHECK(t.books.last.swappable == kSize);
  CHECK(t.memory.handles().size() == 3);
  REQUIRE(t.program.properties(id));
  CHECK(t.program.properties(id)->location.id == 7);
  REQUIRE(t.device.kinds.size() == 3);
  for (const CUmemAllocationProp* asked : t.device.kinds)
    CHECK((asked != nullptr && asked->location.id == 7));
}

TEST_CASE("a refused creation of memory leaves no trace", "[program]") {
  Program t;
  Program::Id id = 0;
  SECTION("by the arbiter") {
    t.books.limit = kSize.count - 1;
    CHECK(t.program.create(&id, kSize, {}) == CUDA_ERROR_OUT_OF_MEMORY);
  }
  SECTION("by the driver, at any call") {
    for (unsigned n = 1; n <= 13; ++n) {
      if (n > 1 && n % 4 == 0) continue;  // a release is tried again
      CAPTURE(n);
      t.device.fail_call(n);
      CHECK(t.program.create(&id, kSize, {}) == CUDA_ERROR_UNKNOWN);
      CHECK(t.gone());
    }
  }
  CHECK(t.memory.use().swappable == Bytes{});
  CHECK(t.device.reserved() == Bytes{});
}

TEST_CASE("program memory exists as long as a reference to it or a mapping of it", "[program]") {
  Program t;
  const Program::Id id = t.made();
  const CUdeviceptr first = t.mapped(id);
  const CUdeviceptr second = t.mapped(id);
  CHECK(t.program.release(id) == CUDA_SUCCESS);
  CHECK(t.program.release(id) == CUDA_ERROR_INVALID_VALUE);
  CHECK(t.program.retain(first) == id);
  CHECK(t.program.retain(second + kSize.count - 1) == id);
  CHECK_FALSE(t.program.retain(std::max(first, second) + kSize.count));
  CHECK(t.program.release(id) == CUDA_SUCCESS);
  CHECK(t.program.unmap(first) == CUDA_SUCCESS);
  CHECK(t.there(first) == 0);
  CHECK(t.there(second) == 3);
  CHECK_FALSE(t.program.retain(first));
  CHECK(t.program.unmap(first) == CUDA_ERROR_INVALID_VALUE);
  const bool mapping_first = GENERATE(true, false);
  if (mapping_first) CHECK(t.program.unmap(second) == CUDA_SUCCESS);
  CHECK(t.program.properties(id));
  CHECK(t.device.physical() == kSize);
  CHECK(t.program.release(id) == CUDA_SUCCESS);
  if (!mapping_first) {
    CHECK(t.device.physical() == kSize);
    CHECK(t.program.unmap(second) == CUDA_SUCCESS);
  }
  CHECK_FALSE(t.program.release(id));
  CHECK_FALSE(t.program.properties(id));
  CHECK(t.gone());
  CHECK(t.books.last.swappable == Bytes{});
  CHECK(t.device.reserved() == kSize + kSize);  // the two ranges that the program reserved itself
  CHECK(t.device.synchronizations() == 0);
}

TEST_CASE("a mapping covers all of the memory, at whole granules where nothing is mapped", "[program]") {
  Program t;
  const Program::Id id = t.made();
  const CUdeviceptr room = t.device.reserve_for_program({3 * kSize.count});
  const CUdeviceptr at = room + kSize.count;
  CHECK_FALSE(t.program.map(at, kSize, id + 1));
  CHECK(t.program.map(at, kHandle, id) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(t.program.map(at + 1, kSize, id) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(t.program.map(at, kSize, id) == CUDA_SUCCESS);
  constexpr std::uint64_t kGranule = 4096;
  for (const CUdeviceptr taken : {at, at + kSize.count - kGranule, at - kSize.count + kGranule})
    CHECK(t.program.map(taken, kSize, id) == CUDA_ERROR_INVALID_VALUE);
  CHECK(t.views() == 3);
  CHECK(t.program.map(room, kSize, id) == CUDA_SUCCESS);
  CHECK(t.program.map(at + kSize.count, kSize, id) == CUDA_SUCCESS);
  CHECK(t.agrees());
}

TEST_CASE("the next mapping is the first with a byte in the range", "[program]") {
  Program t;
  const Program::Id id = t.made();
  const CUdeviceptr room = t.device.reserve_for_program({4 * kSize.count});
  const CUdeviceptr first = room + kSize.count;
  const CUdeviceptr second = first + kSize.count;
  REQUIRE(t.program.map(first, kSize, id) == CUDA_SUCCESS);
  REQUIRE(t.program.map(second, kSize, id) == CUDA_SUCCESS);
  const auto begin = [&t](CUdeviceptr address, Bytes size) {
    const auto found = t.program.next(address, size);
    if (found) CHECK(found->size == kSize);
    return found ? found->address : 0;
  };
  CHECK(begin(room, kSize) == 0);
  CHECK(begin(room, kSize + Bytes{1}) == first);
  CHECK(begin(first, {1}) == first);
  CHECK(begin(second - 1, {2}) == first);
  CHECK(begin(second, {1}) == second);
  CHECK(begin(second + kSize.count - 1, kSize) == second);
  CHECK(begin(second + kSize.count, kSize) == 0);
}

TEST_CASE("all places show the same bytes, before and after a turn", "[program]") {
  Program t;
  const Program::Id id = t.made();
  const CUdeviceptr first = t.mapped(id);
  const CUdeviceptr second = t.mapped(id);
  fill(first, kSize, 1);
  CHECK(holds(second, kSize, 1));
  REQUIRE(t.evict());
  CHECK(t.there(first) + t.there(second) == 0);
  CHECK(t.device.physical() == Bytes{});
  REQUIRE(t.restore());
  for (std::uint64_t offset = 0; offset < kSize.count; offset += kHandle.count)
    CHECK(t.device.mapped_at(first + offset) == t.device.mapped_at(second + offset));
  CHECK(holds(first, kSize, 1));
  CHECK(holds(second, kSize, 1));
  CHECK(t.agrees());
}

TEST_CASE("memory that is mapped at another address while it is evicted is there after the restore",
          "[program]") {
  Program t;
  const Program::Id id = t.made();
  const CUdeviceptr first = t.mapped(id);
  fill(first, kSize, 1);
  REQUIRE(t.evict());
  const CUdeviceptr second = t.mapped(id);
  CHECK(t.there(second) == 0);
  REQUIRE(t.restore());
  CHECK(holds(second, kSize, 1));
  REQUIRE(t.evict());
  CHECK(t.program.unmap(first) == CUDA_SUCCESS);
  REQUIRE(t.restore());
  CHECK(t.there(first) == 0);
  CHECK(holds(second, kSize, 1));
  CHECK(t.agrees());
}

TEST_CASE("a mapping comes back with all the access it was given", "[program]") {
  Program t;
  const CUdeviceptr at = t.mapped(t.made());
  const CUdeviceptr last = at + 2 * kHandle.count;
  CHECK(t.program.set_access(at + 1, nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
  const CUmemAccessDesc more[] = {access_of(2, CU_MEM_ACCESS_FLAGS_PROT_READ),
                                  access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READ)};
  const CUmemAccessDesc other_type = [] {
    CUmemAccessDesc access = access_of(2);
    access.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    return access;
  }();
  const bool away = GENERATE(false, true);
  if (away) REQUIRE(t.evict());
  REQUIRE(t.set_access(at, 1) == CUDA_SUCCESS);
  REQUIRE(t.program.set_access(at, &other_type, 1) == CUDA_SUCCESS);
  if (away) {
    REQUIRE(t.program.set_access(at, more, 2) == CUDA_SUCCESS);
  } else {
    REQUIRE(t.evict());
    REQUIRE(t.program.set_access(at, more, 2) == CUDA_SUCCESS);
  }
  t.device.accesses.clear();
  REQUIRE(t.restore());
  for (const CUdeviceptr handle : {at, last}) {
    const std::vector<CUmemAccessDesc>& given = t.device.accesses[handle];
    REQUIRE(given.size() == 4);
    CHECK((given[0].location.id == 0 && given[0].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CHECK((given[1].location.id == 1 && given[1].flags == CU_MEM_ACCESS_FLAGS_PROT_READ));
    CHECK((given[2].location.type == other_type.location.type && given[2].flags == other_type.flags));
    CHECK((given[3].location.id == 2 && given[3].flags == CU_MEM_ACCESS_FLAGS_PROT_READ));
  }
}

TEST_CASE("memory that is mapped anew leaves last", "[program]") {
  Program t;
  const Program::Id ids[] = {t.made(), t.made()};
  for (int turn = 0; turn < 4; ++turn) {
    t.mapped(ids[turn % 2]);
    REQUIRE(t.evict(kSize));
    CHECK(t.there(ids[turn % 2]) == 3);
    CHECK(t.there(ids[1 - turn % 2]) == 0);
    REQUIRE(t.restore());
  }
}

// A restored handle leaves last, so another handle has to leave. The contents of the other handle fit only
// into the host memory that holds the clean copy of the restored handle.
TEST_CASE("a clean copy gives up its host memory before the pool grows", "[program]") {
  Program t;
  const Program::Id ids[] = {t.made(kHandle + kHandle), t.made(kHandle + kHandle), t.made(kHandle + kHandle)};
  const Bytes each = kHandle + kHandle;
  const CUdeviceptr at = t.device.reserve_for_program(each);
  for (unsigned i = 0; i < 3; ++i) fill(ids[i], each, i);
  REQUIRE(t.evict(each + each));
  CHECK(t.device.pinned() == each);
  REQUIRE(t.restore());
  REQUIRE(t.program.map(at, each, ids[0]) == CUDA_SUCCESS);
  REQUIRE(t.evict(each + each));
  CHECK(t.device.pinned() == each);
  CHECK(t.device.mapped_at(ids[1]) == 0);
  REQUIRE(t.restore());
  for (unsigned i = 0; i < 3; ++i) CHECK(holds(ids[i], each, i));
}

TEST_CASE("memory that was made first leaves first", "[program]") {
  Program t;
  std::vector<Program::Id> ids = {t.made(kHandle), t.made(kHandle), t.made(kHandle)};
  REQUIRE(t.program.release(ids[1]) == CUDA_SUCCESS);
  ids = {ids[0], ids[2], t.made(kHandle)};  // the last handle is mapped where the second handle was
  for (unsigned left = 2; left != 0; --left) {
    REQUIRE(t.evict({left * kHandle.count}));
    for (unsigned i = 0; i < 3; ++i) CHECK((t.device.mapped_at(ids[i]) != 0) == (i >= 3 - left));
  }
}

TEST_CASE("a map that fails at any call is undone", "[program]") {
  Program t;
  const Program::Id id = t.made();
  const CUdeviceptr other = t.mapped(id);
  const CUdeviceptr at = t.device.reserve_for_program(kSize);
  const bool shown_before = GENERATE(false, true);
  if (!shown_before) REQUIRE(t.program.unmap(other) == CUDA_SUCCESS);
  const unsigned calls =
      shown_before ? 4 : 3;  // calls for a handle: retain, access at the other mapping, map, release
  for (unsigned n = 1; n < 3 * calls; ++n) {
    if (n % calls == 0) continue;  // a release is tried again
    CAPTURE(n);
    t.device.fail_call(n, CUDA_ERROR_NOT_PERMITTED);
    CHECK(t.program.map(at, kSize, id) == CUDA_ERROR_NOT_PERMITTED);
    CHECK(t.there(at) == 0);
    CHECK(t.views() == (shown_before ? 3 : 0));
    CHECK(t.there(other) == (shown_before ? 3 : 0));
    CHECK_FALSE(t.program.next(at, kSize));
    CHECK_FALSE(t.program.retain(at));
    CHECK(t.agrees());
  }
  REQUIRE(t.program.map(at, kSize, id) == CUDA_SUCCESS);
  CHECK(t.there(at) == 3);
  REQUIRE(t.program.unmap(at) == CUDA_SUCCESS);
  if (shown_before) REQUIRE(t.program.unmap(other) == CUDA_SUCCESS);
  CHECK(t.program.release(id) == CUDA_SUCCESS);
  CHECK(t.gone());
}

TEST_CASE("memory that is given back while it is mapped lives as long as the mapping", "[program]") {
  Program t;
  const Program::Id id = t.made();
  const CUdeviceptr at = t.device.reserve_for_program(kSize);
  // Another thread may release the memory while map() runs.
  t.device.before_retain = [&] { CHECK(t.program.release(id) == CUDA_SUCCESS); };
  const bool fails = GENERATE(false, true);
  if (fails) t.device.fail_call(2, CUDA_ERROR_NOT_PERMITTED);
  CHECK(t.program.map(at, kSize, id) == (fails ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS));
  CHECK(t.program.properties(id).has_value() == !fails);
  if (!fails) CHECK(t.program.unmap(at) == CUDA_SUCCESS);
  CHECK_FALSE(t.program.properties(id));
  CHECK(t.gone());
}

TEST_CASE("an unmap that fails in the middle can be repeated, and unmaps each handle once", "[program]") {
  for (unsigned n = 1; n <= 3; ++n) {
    Program t;
    const Program::Id id = t.made();
    const CUdeviceptr at = t.mapped(id);
    CAPTURE(n);
    t.device.fail_call(n);
    CHECK(t.program.unmap(at) == CUDA_ERROR_UNKNOWN);
    CHECK(t.program.next(at, kSize));
    CHECK(t.there(at) == 4 - n);
    CHECK(t.set_access(at) == (n == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));
    CHECK(t.evict());
    CHECK(t.restore());
    CHECK(t.program.unmap(at) == CUDA_SUCCESS);
    CHECK(t.there(at) == 0);
    CHECK(t.program.release(id) == CUDA_SUCCESS);
    CHECK(t.gone());
  }
}

TEST_CASE("access that cannot be given is an error, and is not given in the next turn", "[program]") {
  for (unsigned n = 1; n <= 3; ++n) {
    Program t;
    const CUdeviceptr at = t.mapped(t.made());
    t.device.fail_call(n);
    CHECK(t.set_access(at, 5) == CUDA_ERROR_UNKNOWN);
    REQUIRE(t.evict());
    REQUIRE(t.restore());
    for (unsigned i = 0; i < 3; ++i)
      CHECK(t.device.accesses[at + i * kHandle.count].size() == (i + 1 < n ? 2 : 1));
    CHECK(t.set_access(at, 5) == CUDA_SUCCESS);
    CHECK(t.agrees());
  }
}

TEST_CASE("a restore that fails at any call restores all memory when it is repeated", "[program]") {
  bool failed = true;
  for (unsigned n = 1; failed; ++n) {
    CAPTURE(n);
    MappedTwice t(n);
    REQUIRE(t.evict());
    t.device.fail_call(n);
    t.restore();
    failed = t.device.has_failed();
    t.device.fail_call(0);
    CHECK(t.agrees());
    for (const Handle& handle : t.memory.handles()) CHECK(handle.mapped == handle.usable());
    REQUIRE(t.restore());
    CHECK(holds(t.first, kSize, n));
    CHECK(holds(t.second, kSize, n));
    CHECK(t.agrees());
    REQUIRE(t.evict());
    CHECK(t.there(t.first) + t.there(t.second) == 0);
    CHECK(t.device.physical() == Bytes{});
  }
}

TEST_CASE("after an eviction in which any driver call fails, a further eviction takes the rest",
          "[program]") {
  bool failed = true;
  for (unsigned n = 1; failed; ++n) {
    CAPTURE(n);
    MappedTwice t(n);
    t.device.fail_call(n);
    t.evict();
    failed = t.device.has_failed();
    t.device.fail_call(0);
    CHECK(t.agrees());
    const bool restored_first = n % 2 == 0;
    if (restored_first) REQUIRE(t.restore());
    if (restored_first) CHECK(holds(t.second, kSize, n));
    REQUIRE(t.evict());
    CHECK(t.there(t.first) + t.there(t.second) == 0);
    REQUIRE(t.restore());
    CHECK(holds(t.first, kSize, n));
    CHECK(holds(t.second, kSize, n));
    CHECK(t.agrees());
  }
}

TEST_CASE("memory that the driver would not take back may be given back again", "[program]") {
  for (unsigned n = 1; n <= 3; ++n) {
    CAPTURE(n);
    Program t;
    const Program::Id id = t.made();
    t.device.fail_call(n);
    CHECK(t.program.release(id) == CUDA_ERROR_UNKNOWN);
    CHECK(t.program.properties(id));
    CHECK(t.memory.use().swappable == kSize);
    CHECK(t.memory.use().resident == Bytes{(4 - n) * kHandle.count});
    CHECK(t.books.last.resident == t.memory.use().resident);
    CHECK(t.agrees());
    CHECK(t.program.release(id) == CUDA_SUCCESS);
    CHECK_FALSE(t.program.release(id));
    CHECK(t.gone());
  }
}

TEST_CASE(
    "the last unmap succeeds even if the driver does not release the memory, which can be released later",
    "[program]") {
  Program t;
  const Program::Id id = t.made();
  const CUdeviceptr at = t.mapped(id);
  REQUIRE(t.program.release(id) == CUDA_SUCCESS);
  t.device.fail_call(4);
  CHECK(t.program.unmap(at) == CUDA_SUCCESS);
  CHECK(t.program.properties(id));
  CHECK(t.program.release(id) == CUDA_SUCCESS);
  CHECK(t.gone());
}

// The device takes no fingerprints here, so the driver's calls are: enter, pin, copy, wait, wait again.
TEST_CASE("a copy that may be under way is waited for before the memory goes", "[program]") {
  Program t;
  const Program::Id id = t.made(kHandle);
  t.device.set_blind(true);
  t.device.fail_call(4, CUDA_ERROR_UNKNOWN, 1);
  REQUIRE_FALSE(t.evict());
  CHECK(t.device.synchronizations() == 0);
  t.device.fail_call(1);
  CHECK(t.program.release(id) == CUDA_ERROR_UNKNOWN);
  CHECK(t.device.physical() == kHandle);
  CHECK(t.program.release(id) == CUDA_SUCCESS);
  CHECK(t.device.synchronizations() == 1);
  CHECK(t.gone());
}
