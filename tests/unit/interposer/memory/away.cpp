// SPDX-License-Identifier: Apache-2.0
// The memory of an oversized process: handles beyond the window are away, and exchanges bring them into the
// window.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <utility>
#include <vector>

#include "tests/unit/interposer/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

constexpr Bytes kGranule = kibibytes(4);
constexpr Bytes kPiece = kibibytes(128);  // size of a handle
constexpr Bytes kWindow{6 * kPiece.count};
constexpr Bytes kBeyond{8 * kPiece.count};  // the most memory beyond the window
constexpr Bytes kTwo{2 * kPiece.count};

// A process whose window holds six handles.
template <class SomeDevice = FakeDevice>
struct OversizedOn : WorldOn<SomeDevice> {
  OversizedOn() {
    this->books.limit = kWindow.count;
    this->books.beyond_limit = kBeyond.count;
    this->memory.set_allowed(kWindow);
  }
  AwayMemory& away = *this->memory.away_memory();

  CUdeviceptr added(Bytes size, unsigned seed) {
    CUdeviceptr address = 0;
    REQUIRE(this->memory.allocate(&address, size) == CUDA_SUCCESS);
    fill(address, size, seed);
    return address;
  }
  Bytes beyond() const { return this->memory.reading().beyond; }
  std::vector<CUdeviceptr> handles_that_are(bool away_from_gpu) const {
    std::vector<CUdeviceptr> found;
    for (const Handle& handle : this->memory.handles())
      if (handle.away == away_from_gpu) found.push_back(handle.address);
    return found;
  }
  std::vector<CUdeviceptr> all_away() const { return handles_that_are(true); }
  std::vector<CUdeviceptr> all_here() const { return handles_that_are(false); }
  bool is_away(CUdeviceptr address) const {
    const auto handles = all_away();
    return std::ranges::find(handles, address) != handles.end();
  }

  // Checks that the counts agree with the device and with the window.
  void check_counts(Bytes most = kWindow) const {
    const auto [use, beyond, widening] = this->memory.reading();
    Bytes here;
    Bytes mapped;
    Bytes away_bytes;
    Bytes in_blocks;
    for (const Handle& handle : this->memory.handles()) {
      REQUIRE_FALSE(handle.busy);
      REQUIRE(handle.counted == (handle.mapped && !handle.away && handle.place != Handle::Place::settled));
      const bool pinned = handle.place == Handle::Place::settled;
      if (handle.away) away_bytes += handle.size;
      if (!handle.away && !pinned) here += handle.size;
      if (handle.mapped && !handle.away) mapped += handle.size;
      if (handle.block) in_blocks += handle.block->size;
      REQUIRE((handle.contents == Handle::Contents::in_block) <= handle.block.has_value());
    }
    REQUIRE(here <= use.swappable);
    REQUIRE(here + away_bytes == use.swappable + beyond);
    REQUIRE(use.footprint() <= most);
    REQUIRE(use.resident <= use.swappable);
    REQUIRE(this->device.physical() == mapped);
    REQUIRE(this->device.host_physical() == this->budget.uncharged());
    REQUIRE(this->device.host_physical() == this->memory.uncharged());
    REQUIRE(in_blocks <= this->device.host_physical());
    REQUIRE(this->device.misuse() == "");
  }
  bool all_usable() const {
    return std::ranges::all_of(this->memory.handles(), [](const Handle& handle) { return handle.usable(); });
  }
};
using Oversized = OversizedOn<>;

}  // namespace

TEST_CASE("memory that the arbiter refuses for lack of device memory is away", "[away]") {
  Oversized t;
  const CUdeviceptr first = t.added(kWindow, 1);
  CHECK(t.all_away().empty());
  const CUdeviceptr second = t.added(kTwo, 2);
  CHECK(t.books.windows == 1);
  CHECK(t.books.told == 0);
  CHECK_FALSE(t.all_away().empty());
  CHECK(t.beyond() == kTwo);
  CHECK(t.memory.use().swappable == kWindow);
  CHECK(t.memory.use().resident == kWindow);
  CHECK(t.device.host_physical() == kTwo);
  CHECK(t.is_away(second));
  t.check_counts();
  CHECK(holds(first, kWindow, 1));
  CHECK(holds(second, kTwo, 2));

  // Once a window exists, new memory is away.
  const CUdeviceptr third = t.added(kPiece, 3);
  CHECK(t.books.windows == 1);
  CHECK(t.is_away(third));
  CHECK(t.beyond() == Bytes{3 * kPiece.count});
  t.check_counts();
}

TEST_CASE("an allocation that crosses the end of the window is away in part", "[away]") {
  Oversized t;
  t.added(Bytes{4 * kPiece.count}, 1);
  const CUdeviceptr second = t.added(Bytes{4 * kPiece.count}, 2);
  // The arbiter refuses the allocation as a whole, and grants the part for which the GPU has room.
  CHECK(t.memory.use().swappable == kWindow);
  CHECK(t.all_away().size() == 2);
  CHECK(holds(second, Bytes{4 * kPiece.count}, 2));
  t.check_counts();
}

TEST_CASE("an allocation that is larger than the GPU fills the window", "[away]") {
  Oversized t;
  const Bytes size{8 * kPiece.count};
  const CUdeviceptr block = t.added(size, 1);
  CHECK(t.all_here().size() == 6);
  CHECK(t.beyond() == Bytes{size.count - kWindow.count});
  t.check_counts();
  CHECK(holds(block, size, 1));
}

TEST_CASE("nothing is away where the site forbids it", "[away]") {
  Oversized t;
  t.books.beyond_limit = 0;
  t.added(kWindow, 1);
  CUdeviceptr address = 0;
  CHECK(t.memory.allocate(&address, kTwo) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.books.windows == 0);
  CHECK(t.books.told == 1);
  CHECK(t.memory.use().swappable == kWindow);
  CHECK(t.beyond() == Bytes{});
}

// Without a report after the refusal, a restarted arbiter would count the refused memory, and would never
// give the process a turn.
TEST_CASE("the arbiter learns the size of the window after it has refused a larger one", "[away]") {
  Oversized t;
  t.added(kWindow, 1);
  Bytes most_asked;
  t.books.when_asked = [&] { most_asked = std::max(most_asked, t.memory.use().swappable); };
  const unsigned reports = t.books.reports;
  t.added(kTwo, 2);
  CHECK(most_asked == kWindow + kTwo);
  CHECK(t.books.reports > reports);
  CHECK(t.books.last.swappable == kWindow);
}

// A request for pinned memory has no report afterwards, so the larger window must cause a report.
TEST_CASE("the arbiter learns the size of the window after it has granted a larger one", "[away]") {
  Oversized t;
  t.added(kWindow, 1);
  t.added(kTwo, 2);
  t.books.limit = (kWindow + kTwo + kPiece).count;
  const unsigned reports = t.books.reports;
  REQUIRE(t.memory.pin(kPiece) == CUDA_SUCCESS);
  CHECK(t.beyond() == Bytes{});
  CHECK(t.books.reports > reports);
  CHECK(t.books.last.swappable == kWindow + kTwo);
}

// Without an arbiter, nothing would limit the window. The next arbiter would never give a turn to a process
// whose window is larger than the GPU.
TEST_CASE("the window stays as it is while no arbiter answers", "[away]") {
  Oversized t;
  t.added(kWindow, 1);
  t.added(kTwo, 2);
  t.books.lost = true;
  const unsigned asked = t.books.asked;
  const CUdeviceptr third = t.added(kTwo, 3);
  CHECK(t.books.asked == asked + 2);
  CHECK(t.is_away(third));
  CHECK(t.memory.use().swappable == kWindow);
  CHECK(t.beyond() == kTwo + kTwo);
  t.check_counts();
  REQUIRE(t.memory.pin(kPiece) == CUDA_SUCCESS);
  CHECK(t.memory.use().swappable == kWindow);
  t.memory.unpin(kPiece);
  t.books.lost = false;
  t.added(kPiece, 4);
  CHECK(t.memory.use().swappable == kWindow);
  t.check_counts();
}

// While the request waits, another thread may send a report. If that report did not count the requested part
// as beyond the window, the arbiter would count too little memory.
TEST_CASE("the part of the window that is requested counts as beyond the window, too", "[away]") {
  Oversized t;
  t.added(kWindow, 1);
  Bytes most;
  t.books.when_asked = [&] {
    const auto [use, beyond, widening] = t.memory.reading();
    if (widening == Bytes{}) return;
    CHECK(use.swappable == kWindow + widening);
    CHECK(beyond + widening == kTwo);
    most = std::max(most, widening);
  };
  t.added(kTwo, 2);
  CHECK(most == kTwo);
  CHECK(t.memory.reading().widening == Bytes{});
  CHECK(t.beyond() == kTwo);
}

TEST_CASE("memory beyond the window that the arbiter refuses is not allocated", "[away]") {
  Oversized t;
  t.added(kWindow, 1);
  CUdeviceptr address = 0;
  CHECK(t.memory.allocate(&address, kBeyond + kPiece) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.books.windows == 0);
  CHECK(t.books.told == 1);
  CHECK(t.memory.use().swappable == kWindow);
  CHECK(t.beyond() == Bytes{});
  t.check_counts();
  t.added(kBeyond, 2);  // the refusal has no effect on later requests
  CHECK(t.memory.allocate(&address, kPiece) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.beyond() == kBeyond);
  t.check_counts();
}

TEST_CASE("memory that the job's host memory can never hold is refused, not away", "[away]") {
  Oversized t;
  t.budget.most = kWindow + kPiece;
  t.added(kWindow, 1);
  CUdeviceptr address = 0;
  CHECK(t.memory.allocate(&address, kTwo) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.books.windows == 0);
  CHECK(t.books.told_of_host == 1);
  CHECK(t.memory.allocate(&address, kPiece) == CUDA_SUCCESS);
  CHECK(t.beyond() == kPiece);
}

TEST_CASE("an allocation for which no host memory is left is refused before it takes any", "[away]") {
  Oversized t;
  const CUdeviceptr first = t.added(kWindow, 1);
  t.budget.left = kTwo;
  CUdeviceptr address = 0;
  CHECK(t.memory.allocate(&address, kTwo + kPiece) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.device.host_physical() == Bytes{});
  CHECK(t.books.windows == 0);
  CHECK(t.books.last_refusal.host_most == Bytes{kWindow + kTwo});
  CHECK(t.all_away().empty());
  CHECK(t.beyond() == Bytes{});
  CHECK(t.memory.use().swappable == kWindow);
  t.check_counts();
  CHECK(holds(first, kWindow, 1));
  CHECK(t.memory.allocate(&address, kTwo) == CUDA_SUCCESS);
  CHECK(t.budget.uncharged() == kTwo);
  t.check_counts();
  // Unused blocks of away memory count as free memory.
  REQUIRE(t.memory.free(address) == CUDA_SUCCESS);
  CHECK(t.memory.allocate(&address, kTwo) == CUDA_SUCCESS);
  CHECK(t.budget.uncharged() == kTwo);
}

TEST_CASE("unused blocks give way to growth that the arbiter refuses for lack of host memory", "[away]") {
  Oversized t;
  t.added(kWindow, 1);
  const CUdeviceptr second = t.added(kTwo, 2);
  REQUIRE(t.memory.free(second) == CUDA_SUCCESS);
  CHECK(t.memory.uncharged() == kTwo);  // the unused blocks
  t.books.host_limit = (kWindow + kPiece).count;
  const unsigned asked = t.books.asked;
  const CUdeviceptr third = t.added(kPiece, 3);
  CHECK(t.books.asked > asked);
  CHECK(t.memory.uncharged() == kPiece);
  CHECK(t.is_away(third));
  t.check_counts();
  CUdeviceptr address = 0;
  CHECK(t.memory.allocate(&address, kPiece) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.books.told_of_host == 1);
  t.check_counts();
}

TEST_CASE("few unused blocks are kept beside evicted memory, and the arbiter gets to know it", "[away]") {
  SwapOptions options = small_sizes();
  options.kept_blocks = Bytes{5 * kPiece.count};
  options.kept_besides = kPiece;
  WorldOn<> t(gibibytes(1), options);
  t.books.limit = kWindow.count;
  t.books.beyond_limit = gibibytes(1).count;
  t.memory.set_allowed(kWindow);
  CUdeviceptr blocks[3] = {};
  REQUIRE(t.memory.allocate(&blocks[0], kWindow) == CUDA_SUCCESS);
  REQUIRE(t.memory.allocate(&blocks[1], kBeyond) == CUDA_SUCCESS);
  REQUIRE(t.memory.allocate(&blocks[2], kPiece) == CUDA_SUCCESS);
  REQUIRE(t.memory.free(blocks[1]) == CUDA_SUCCESS);
  CHECK(t.memory.uncharged() == kBeyond + kPiece);
  t.memory.tend();
  CHECK(t.memory.uncharged() == Bytes{(5 + 1) * kPiece.count});  // unused blocks are released, since
                                                                 // evictions need host memory
  fill(blocks[0], kWindow, 1);
  t.memory.set_allowed({});
  REQUIRE(t.memory.evict());
  REQUIRE(t.memory.use().host >= kWindow);
  const unsigned reports = t.books.reports;
  t.memory.tend();
  CHECK(t.memory.uncharged() == kTwo);
  CHECK(t.books.reports > reports);
}

TEST_CASE("an oversized process knows how much it may allocate", "[away]") {
  Oversized t;
  const auto pieces_less_cut = [](std::uint64_t pieces) {
    return minus(Bytes{pieces * kPiece.count}, Bytes{3 * kPiece.count} + kGranule);
  };
  t.budget.left = Bytes{8 * kPiece.count};
  CHECK(t.away.growth(kWindow, {}) == kWindow + pieces_less_cut(8));
  t.added(kWindow, 1);
  const CUdeviceptr second = t.added(kTwo, 2);
  CHECK(t.away.growth({}, {}) == pieces_less_cut(6));
  CHECK(t.away.growth(kPiece, {}) == pieces_less_cut(7));
  REQUIRE(t.away.exchange({t.all_here()[0]}, {}));
  // The handle that left uses a block, and leaves as much room in the window.
  CHECK(t.away.growth({}, {}) == pieces_less_cut(6));
  REQUIRE(t.memory.free(second) == CUDA_SUCCESS);
  CHECK(t.away.growth({}, {}) == pieces_less_cut(8));  // the freed blocks and the room in the window
  CUdeviceptr address = 0;
  CHECK(t.memory.allocate(&address, Bytes{9 * kPiece.count}) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.memory.allocate(&address, Bytes{8 * kPiece.count}) == CUDA_SUCCESS);
  CHECK(t.away.growth({}, {}) == Bytes{});
  t.budget.left = Bytes{~0ull};
  CHECK(t.away.growth({}, {}) > gibibytes(1));
}

// The room on the GPU and on the host ends with a part of a handle. An allocation may end with a part of a
// handle, too.
TEST_CASE("all that an oversized process may allocate can be allocated, in one piece or many", "[away]") {
  const Bytes part{GENERATE(0ull, 1ull, 7ull, 16ull, 31ull) * kGranule.count};
  const Bytes host_part{GENERATE(0ull, 1ull, 17ull, 31ull) * kGranule.count};
  const bool window_is_open = GENERATE(false, true);
  const Bytes piece =
      GENERATE(Bytes{}, kibibytes(32), kibibytes(68), kPiece, kPiece + kGranule, kTwo - kGranule);
  Oversized t;
  const Bytes limit = kWindow + kPiece + part;
  t.budget.left = kWindow + host_part;
  t.books.beyond_limit = gibibytes(1).count;
  if (window_is_open) t.books.limit = kPiece.count;
  t.added(kTwo, 1);
  CHECK((t.beyond() != Bytes{}) == window_is_open);
  t.books.limit = limit.count;
  t.memory.set_allowed(limit);

  const Bytes device = limit - t.memory.use().footprint();
  const Bytes all = t.away.growth(device, {});
  CHECK(all + Bytes{4 * kPiece.count} + kGranule >= device + kWindow);
  const Bytes each = piece == Bytes{} ? all : piece;
  for (Bytes done; done + each <= all; done += each) t.added(each, 2);
  t.check_counts(limit);
}

TEST_CASE("handles change places, and keep their contents and addresses", "[away]") {
  Oversized t;
  const CUdeviceptr first = t.added(kWindow, 1);
  const CUdeviceptr second = t.added(Bytes{3 * kPiece.count}, 2);
  const std::vector<CUdeviceptr> here = t.all_here();
  const std::vector<CUdeviceptr> away = t.all_away();
  const unsigned reports = t.books.reports;
  REQUIRE(t.away.exchange({here[0], here[2], here[5]}, away));
  CHECK(t.books.reports > reports);
  CHECK_FALSE(t.is_away(second));
  CHECK(t.all_away() == std::vector<CUdeviceptr>{here[0], here[2], here[5]});
  CHECK(t.memory.use().resident == kWindow);
  CHECK(t.memory.moved().evicted == Bytes{3 * kPiece.count});
  CHECK(t.memory.moved().restored == Bytes{3 * kPiece.count});
  t.check_counts();
  CHECK(holds(first, kWindow, 1));
  CHECK(holds(second, Bytes{3 * kPiece.count}, 2));

  // Exchanges more handles, in both directions, than can be copied at once.
  std::vector<CUdeviceptr> out = t.all_here();
  out.resize(3);
  REQUIRE(t.away.exchange(out, t.all_away()));
  t.check_counts();
  CHECK(holds(first, kWindow, 1));
  CHECK(holds(second, Bytes{3 * kPiece.count}, 2));
}

namespace {

// Counts the handles for which device memory is created.
class Counting final : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  CUresult create(Physical* physical, Bytes size, const CUmemAllocationProp* kind) override {
    ++created;
    return FakeDevice::create(physical, size, kind);
  }
  unsigned created = 0;
};

}  // namespace

TEST_CASE("a handle that enters gets the memory of a handle of its size that leaves", "[away]") {
  OversizedOn<Counting> t;
  const CUdeviceptr first = t.added(kWindow, 1);
  const CUdeviceptr second = t.added(Bytes{3 * kPiece.count}, 2);
  const std::vector<CUdeviceptr> here = t.all_here();
  const unsigned before = t.device.created;
  REQUIRE(t.away.exchange({here[0], here[2], here[5]}, t.all_away()));
  CHECK(t.device.created == before);
  CHECK(t.device.physical() == kWindow);
  t.check_counts();
  CHECK(holds(first, kWindow, 1));
  CHECK(holds(second, Bytes{3 * kPiece.count}, 2));

  // If no handle enters, the memory is free after the exchange.
  REQUIRE(t.away.exchange({t.all_here()[0]}, {}));
  CHECK(t.device.physical() == Bytes{5 * kPiece.count});
  t.check_counts();
}

TEST_CASE("handles of other sizes and kinds that enter get new memory, within the window", "[away]") {
  OversizedOn<Counting> t;
  const CUdeviceptr first = t.added(Bytes{5 * kPiece.count}, 1);
  const CUdeviceptr small = t.added(Bytes{kPiece.count / 2}, 2);
  const CUdeviceptr small_away = t.added(Bytes{kPiece.count / 2 + kGranule.count}, 3);
  REQUIRE(t.all_away().size() == 1);
  CUmemAllocationProp kind{};
  kind.allocFlags.gpuDirectRDMACapable = 1;
  ProgramMemory::Id id = 0;
  REQUIRE(t.program.create(&id, kPiece, kind) == CUDA_SUCCESS);
  const CUdeviceptr view = t.device.reserve_for_program(kPiece);
  REQUIRE(t.program.map(view, kPiece, id) == CUDA_SUCCESS);
  const std::vector<CUdeviceptr> away = t.all_away();
  REQUIRE(away.size() == 2);
  const unsigned before = t.device.created;
  REQUIRE(t.away.exchange({first, first + kPiece.count}, away));
  CHECK(t.device.created == before + 2);
  CHECK(t.device.most_physical() <= kWindow);
  t.check_counts();
  CHECK(holds(first, Bytes{5 * kPiece.count}, 1));
  CHECK(holds(small, Bytes{kPiece.count / 2}, 2));
  CHECK(holds(small_away, Bytes{kPiece.count / 2 + kGranule.count}, 3));
}

TEST_CASE("no handle enters a full window", "[away]") {
  Oversized t;
  t.added(kWindow, 1);
  const CUdeviceptr second = t.added(kTwo, 2);
  t.memory.set_allowed(gibibytes(1));  // the window is the limit even if more memory could be resident
  CHECK(t.away.room() == Bytes{});
  CHECK_FALSE(t.away.exchange({}, {second}));
  t.check_counts();
  const CUdeviceptr one = t.all_here().front();
  CHECK_FALSE(t.away.exchange({one}, t.all_away()));
  CHECK_FALSE(t.is_away(second));
  CHECK(t.all_away().size() == 2);
  t.check_counts();
}

TEST_CASE("an exchange skips handles that have been freed or are elsewhere already", "[away]") {
  Oversized t;
  const CUdeviceptr freed = t.added(kPiece, 1);
  const CUdeviceptr first = t.added(Bytes{5 * kPiece.count}, 2);
  const CUdeviceptr second = t.added(kTwo, 3);
  REQUIRE(t.memory.free(freed) == CUDA_SUCCESS);
  CHECK(t.away.room() == kPiece);
  CHECK(t.away.exchange({freed, second}, {freed, first, second}));
  CHECK_FALSE(t.is_away(second));
  t.check_counts();
  CHECK(holds(second, kTwo, 3));
  // A handle cannot leave and enter at once.
  CHECK_FALSE(t.away.exchange({first}, {first}));
  CHECK(t.is_away(first));
  t.check_counts();
  CHECK(holds(first, Bytes{5 * kPiece.count}, 2));
}

TEST_CASE("without host memory no handle leaves, and nothing is lost", "[away]") {
  Oversized t;
  const CUdeviceptr first = t.added(kWindow, 1);
  const CUdeviceptr second = t.added(kTwo, 2);
  t.budget.left = kTwo;
  const std::vector<CUdeviceptr> here = t.all_here();
  CHECK_FALSE(t.away.exchange(here, t.all_away()));
  CHECK(t.all_here() == here);
  t.check_counts();
  t.budget.left = kTwo + kPiece;  // one free block of host memory suffices to exchange all handles
  CHECK(t.away.exchange({here[0]}, {second}));
  CHECK(t.away.exchange({here[1]}, {here[0]}));
  t.check_counts();
  CHECK(holds(first, kWindow, 1));
  CHECK(holds(second, kTwo, 2));
}

TEST_CASE("a process whose memory fits again has no window", "[away]") {
  Oversized t;
  const CUdeviceptr first = t.added(kWindow, 1);
  const CUdeviceptr second = t.added(kTwo, 2);
  const CUdeviceptr third = t.added(kTwo, 3);
  REQUIRE(t.memory.free(second) == CUDA_SUCCESS);
  CHECK(t.beyond() == kTwo);
  REQUIRE(t.memory.free(first) == CUDA_SUCCESS);
  CHECK(t.beyond() == Bytes{});
  CHECK(t.memory.use().swappable == kTwo);
  CHECK(t.is_away(third));
  CHECK(t.away.room() == kTwo);
  t.check_counts();
  REQUIRE(t.away.exchange({}, t.all_away()));
  CHECK(t.all_away().empty());
  CHECK(holds(third, kTwo, 3));
  t.check_counts();
  t.added(Bytes{4 * kPiece.count}, 4);
  CHECK(t.all_away().empty());
  CHECK(t.books.windows == 1);
  t.added(kPiece, 5);
  CHECK(t.books.windows == 2);
}

TEST_CASE("freed memory that was away is free, and its blocks are kept for others", "[away]") {
  Oversized t;
  t.added(kWindow, 1);
  const CUdeviceptr second = t.added(kTwo, 2);
  const unsigned synchronizations = t.device.synchronizations();
  REQUIRE(t.memory.free(second) == CUDA_SUCCESS);
  CHECK(t.device.synchronizations() > synchronizations);  // free() waits, since a kernel may use the memory
  CHECK(t.memory.free(second) == std::nullopt);
  CHECK(t.beyond() == Bytes{});
  CHECK(t.device.host_physical() == kTwo);
  t.check_counts();
  t.added(kTwo, 3);
  CHECK(t.device.host_physical() == kTwo);
  t.check_counts();
}

TEST_CASE("turns leave memory that is away where it is", "[away]") {
  Oversized t;
  const CUdeviceptr first = t.added(kWindow, 1);
  const CUdeviceptr second = t.added(kTwo, 2);
  const std::vector<CUdeviceptr> away = t.all_away();
  t.memory.set_allowed({});
  REQUIRE(t.memory.evict());
  CHECK(t.memory.use().resident == Bytes{});
  CHECK(t.device.physical() == Bytes{});
  CHECK(t.all_away() == away);
  t.check_counts();
  CHECK(t.away.room() == Bytes{});
  CHECK_FALSE(t.away.exchange({}, away));  // no memory may be resident now
  t.memory.set_allowed(kWindow);
  REQUIRE(t.memory.restore());
  CHECK(t.memory.use().resident == kWindow);
  CHECK(t.all_away() == away);
  t.check_counts();
  CHECK(holds(first, kWindow, 1));
  CHECK(holds(second, kTwo, 2));
}

TEST_CASE("an unused part of the window counts as resident as far as this is allowed", "[away]") {
  Oversized t;
  const CUdeviceptr first = t.added(kTwo, 1);
  const CUdeviceptr rest = t.added(kWindow - kTwo, 2);
  t.added(kTwo, 3);
  REQUIRE(t.memory.free(first) == CUDA_SUCCESS);
  CHECK(t.memory.use().swappable == kWindow);
  CHECK(t.memory.use().resident == kWindow);
  t.memory.set_allowed(kTwo);
  REQUIRE(t.memory.evict());
  CHECK(t.memory.use().resident == kTwo);
  t.memory.set_allowed({});
  REQUIRE(t.memory.evict());
  CHECK(t.memory.use().resident == Bytes{});
  t.memory.set_allowed(kWindow);
  REQUIRE(t.memory.restore());
  CHECK(t.memory.use().resident == kWindow);
  CHECK(holds(rest, kWindow - kTwo, 2));
  t.check_counts();
}

TEST_CASE("a clean copy in host memory does not outlive a change of places", "[away]") {
  Oversized t;
  const CUdeviceptr first = t.added(kWindow, 1);
  t.added(kTwo, 2);
  t.memory.set_allowed({});
  REQUIRE(t.memory.evict());
  t.memory.set_allowed(kWindow);
  REQUIRE(t.memory.restore());
  const std::vector<CUdeviceptr> away = t.all_away();
  REQUIRE(t.away.exchange({first}, {away.front()}));
  fill(first, kPiece, 7);  // changes the contents in away memory
  REQUIRE(t.away.exchange({away.front()}, {first}));
  t.memory.set_allowed({});
  REQUIRE(t.memory.evict());
  t.memory.set_allowed(kWindow);
  REQUIRE(t.memory.restore());
  CHECK(holds(first, kPiece, 7));
  t.check_counts();
}

TEST_CASE("memory that is away does not settle until it has come in", "[away]") {
  Oversized t;
  t.added(kWindow, 1);
  const CUdeviceptr second = t.added(kTwo, 2);
  CHECK(t.memory.settle(second, kTwo) == CUDA_ERROR_NOT_READY);
  CHECK(t.memory.use().pinned == Bytes{});
  const std::vector<CUdeviceptr> here = t.all_here();
  REQUIRE(t.away.exchange({here[0], here[1]}, t.all_away()));
  REQUIRE(t.memory.settle(second, kTwo) == CUDA_SUCCESS);
  CHECK(t.memory.use().pinned == kTwo);
  CHECK(t.memory.use().swappable == kWindow - kTwo);
  CHECK(t.beyond() == kTwo);
  t.check_counts();
  // Memory that is pinned in place does not leave the window.
  CHECK_FALSE(t.away.exchange({second}, {here[0]}));
  CHECK_FALSE(t.is_away(second));
  CHECK(t.away.operands(second).empty());
  // Freeing this memory does not enlarge the window.
  REQUIRE(t.memory.free(second) == CUDA_SUCCESS);
  CHECK(t.memory.use().pinned == Bytes{});
  CHECK(t.memory.use().swappable == kWindow - kTwo);
  CHECK(t.beyond() == kTwo);
  t.check_counts();
}

// The arbiter may have granted the request, and subtracted the memory from the window.
TEST_CASE("memory that is freed while it is being pinned leaves no room in the window", "[away]") {
  Oversized t;
  CUdeviceptr first = t.added(kTwo, 1);
  t.added(kWindow - kTwo, 2);
  t.added(kTwo, 3);
  t.books.when_asked = [&] {
    if (first != 0) CHECK(t.memory.free(std::exchange(first, 0)) == CUDA_SUCCESS);
  };
  CHECK(t.memory.settle(first, kTwo) == CUDA_SUCCESS);
  CHECK(t.memory.use().pinned == Bytes{});
  CHECK(t.memory.use().swappable == kWindow - kTwo);
  CHECK(t.beyond() == kTwo);
  t.check_counts();
}

TEST_CASE("while a thread asks for a larger window, other threads may free, and no handle enters early",
          "[away]") {
  Oversized t;
  const CUdeviceptr first = t.added(kWindow, 1);
  CUdeviceptr second = t.added(kTwo, 2);
  const CUdeviceptr third = t.added(kTwo, 3);
  t.memory.set_allowed(gibibytes(1));
  bool entered = false;
  t.books.when_asked = [&] {
    if (t.memory.use().swappable <= kWindow || second == 0) return;
    entered = t.away.exchange({}, {third});
    CHECK(t.memory.free(std::exchange(second, 0)) == CUDA_SUCCESS);
  };
  t.added(kPiece, 4);
  CHECK(second == 0);
  CHECK_FALSE(entered);
  CHECK(t.memory.use().swappable == kWindow);
  CHECK(t.beyond() == kTwo + kPiece);
  t.check_counts();
  CHECK(holds(first, kWindow, 1));
  CHECK(holds(third, kTwo, 3));
}

TEST_CASE("the window stays small if others have got the part that was to be pinned", "[away]") {
  Oversized t;
  t.added(kWindow, 1);
  t.added(kTwo, 2);
  t.books.beyond_limit = kTwo.count;
  t.books.when_asked = [&] {
    if (t.beyond() > kTwo) t.books.limit = (kWindow - kPiece).count;
  };
  CHECK(t.memory.pin(kPiece) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.memory.use().footprint() == kWindow - kPiece);
  CHECK(t.beyond() == kTwo + kPiece);
  CHECK(t.books.claimed == 1);
  t.check_counts();
}

TEST_CASE("handles leave the window for pinned memory", "[away]") {
  Oversized t;
  const CUdeviceptr first = t.added(kWindow, 1);
  const CUdeviceptr second = t.added(kTwo, 2);
  REQUIRE(t.memory.pin(kPiece + Bytes{1}) == CUDA_SUCCESS);
  CHECK(t.all_away().size() == 4);
  CHECK(t.memory.use().pinned == kPiece + Bytes{1});
  CHECK(t.memory.use().footprint() == kWindow);
  CHECK(t.beyond() == kTwo + kPiece + Bytes{1});
  CHECK(t.away.excess() == Bytes{});
  CHECK(t.away.room() < kPiece);
  t.check_counts();
  CHECK(holds(first, kWindow, 1));
  CHECK(holds(second, kTwo, 2));
  CHECK(t.books.told == 0);
}

TEST_CASE("pinned memory may be what makes a process oversized", "[away]") {
  Oversized t;
  const CUdeviceptr first = t.added(kWindow, 1);
  REQUIRE(t.memory.pin(kTwo) == CUDA_SUCCESS);
  CHECK(t.books.windows == 1);
  CHECK(t.all_away().size() == 2);
  CHECK(t.beyond() == kTwo);
  t.check_counts();
  CHECK(holds(first, kWindow, 1));
  // Freeing pinned memory does not enlarge the window, since the arbiter grants growth on request only.
  t.memory.unpin(kTwo);
  CHECK(t.memory.use().footprint() == kWindow - kTwo);
  CHECK(t.away.room() == Bytes{});
  t.check_counts();
}

TEST_CASE("pinned memory that cannot have a place on the GPU is refused, and nothing changes", "[away]") {
  Oversized t;
  const CUdeviceptr first = t.added(kWindow, 1);
  const CUdeviceptr second = t.added(kTwo, 2);
  const std::vector<CUdeviceptr> away = t.all_away();
  SECTION("it is larger than the window") { CHECK(t.memory.pin(kWindow + kPiece) != CUDA_SUCCESS); }
  SECTION("handles cannot leave now") {
    t.books.makes_room = false;
    CHECK(t.memory.pin(kPiece) != CUDA_SUCCESS);
  }
  SECTION("the site forbids it") {
    t.books.beyond_limit = 0;
    CHECK(t.memory.pin(kPiece) != CUDA_SUCCESS);
  }
  CHECK(t.all_away() == away);
  CHECK(t.memory.use().footprint() == kWindow);
  CHECK(t.memory.use().pinned == Bytes{});
  CHECK(t.beyond() == kTwo);
  CHECK(t.books.told == 1);
  CHECK(t.books.last_refusal.pinned);
  t.books.makes_room = true;
  t.books.beyond_limit = kBeyond.count;
  t.check_counts();
  CHECK(t.memory.pin(kPiece) == CUDA_SUCCESS);
  t.check_counts();
  CHECK(holds(first, kWindow, 1));
  CHECK(holds(second, kTwo, 2));
}

TEST_CASE("unused blocks give way to a smaller window", "[away]") {
  Oversized t;
  const CUdeviceptr first = t.added(kWindow, 1);
  const CUdeviceptr second = t.added(kTwo, 2);
  const CUdeviceptr third = t.added(kTwo, 3);
  REQUIRE(t.memory.free(third) == CUDA_SUCCESS);
  t.books.when_asked = [&] {  // the arbiter compares only evictable and away memory with the limit
    if (t.beyond() > kTwo) t.books.host_limit = (kWindow + kTwo).count;
  };
  REQUIRE(t.memory.uncharged() == kTwo + kTwo);  // half of the blocks are unused
  CHECK(t.memory.pin(kPiece) == CUDA_SUCCESS);
  CHECK(t.beyond() == kTwo + kPiece);
  CHECK(t.memory.uncharged() == kTwo + kPiece);
  t.check_counts();
  CHECK(holds(first, kWindow, 1));
  CHECK(holds(second, kTwo, 2));
}

TEST_CASE("if the arbiter refuses more memory beyond the window, no memory is pinned", "[away]") {
  Oversized t;
  t.added(kWindow, 1);
  t.added(kBeyond, 2);
  CHECK(t.memory.pin(kPiece) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.memory.use().pinned == Bytes{});
  CHECK(t.memory.use().swappable == kWindow);
  CHECK(t.beyond() == kBeyond);
  CHECK(t.away.room() == kPiece);  // one handle has left the window, and may enter again
  t.check_counts();
}

TEST_CASE("memory that the program has made itself is away at all of its addresses", "[away]") {
  Oversized t;
  const CUdeviceptr first = t.added(kWindow, 1);
  ProgramMemory::Id id = 0;
  REQUIRE(t.program.create(&id, kTwo, {}) == CUDA_SUCCESS);
  CUmemAccessDesc access{};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const CUdeviceptr one = t.device.reserve_for_program(kTwo);
  const CUdeviceptr other = t.device.reserve_for_program(kTwo);
  for (const CUdeviceptr at : {one, other}) {
    REQUIRE(t.program.map(at, kTwo, id) == CUDA_SUCCESS);
    REQUIRE(t.program.set_access(at, &access, 1) == CUDA_SUCCESS);
  }
  fill(one, kTwo, 2);
  CHECK(holds(other, kTwo, 2));
  CHECK(t.is_away(id));
  // The addresses at which the program mapped the memory identify the handles, too.
  const std::vector<AwayHandle> operands = t.away.operands(one + kPiece.count);
  REQUIRE(operands.size() == 1);
  CHECK(operands.front().address == id + kPiece.count);
  CHECK(operands.front().away);
  CHECK(t.away.within(one, kTwo).size() == 2);
  const std::vector<CUdeviceptr> here = t.all_here();
  REQUIRE(t.away.exchange({here[0], here[1]}, t.all_away()));
  CHECK(holds(one, kTwo, 2));
  fill(other, kTwo, 3);
  REQUIRE(t.away.exchange({id}, {here[0]}));
  CHECK(holds(one, kTwo, 3));
  fill(one, kTwo, 4);
  CHECK(holds(other, kTwo, 4));
  t.check_counts();
  REQUIRE(t.program.unmap(one) == CUDA_SUCCESS);
  REQUIRE(t.program.release(id) == CUDA_SUCCESS);
  REQUIRE(t.program.unmap(other) == CUDA_SUCCESS);
  CHECK(t.all_away() == std::vector<CUdeviceptr>{here[1]});
  t.check_counts();
  CHECK(holds(first, kWindow, 1));
}

TEST_CASE("an operand is what lies between the address and the end of its allocation", "[away]") {
  Oversized t;
  const CUdeviceptr first = t.added(kWindow, 1);
  const CUdeviceptr small = t.added(kibibytes(3), 2);
  CHECK(t.away.operands(first).size() == 6);
  CHECK(t.away.operands(first + 5 * kPiece.count).size() == 1);
  CHECK(t.away.operands(first + kPiece.count - 1).size() == 6);
  CHECK(t.away.operands(first + kWindow.count).empty());
  const std::vector<AwayHandle> arena = t.away.operands(small + 5);
  REQUIRE(arena.size() == 1);
  CHECK(arena.front().away);
  CHECK(t.away.operands(small + kibibytes(3).count).empty());
  CHECK(t.away.operands(0).empty());
  CHECK(t.away.operands(~0ull).empty());
  REQUIRE(t.memory.free(first) == CUDA_SUCCESS);
  CHECK(t.away.operands(first).empty());
}

TEST_CASE("host memory that the program makes itself counts as memory beyond the window", "[away]") {
  Oversized t;
  t.added(kWindow, 1);
  REQUIRE(t.memory.take_host(kTwo) == CUDA_SUCCESS);
  CHECK(t.beyond() == kTwo);
  CHECK(t.budget.uncharged() == kTwo);
  CHECK(t.all_away().empty());
  CHECK(t.memory.take_host(kBeyond) == CUDA_ERROR_OUT_OF_MEMORY);  // the arbiter refuses
  CHECK(t.beyond() == kTwo);
  CHECK(t.budget.uncharged() == kTwo);
  t.budget.left = kTwo + kPiece;
  CHECK(t.memory.take_host(kTwo) == CUDA_ERROR_OUT_OF_MEMORY);  // the job has too little host memory
  const unsigned reports = t.books.reports;
  t.memory.give_host(kTwo);
  CHECK(t.books.reports > reports);
  CHECK(t.beyond() == Bytes{});
  CHECK(t.budget.uncharged() == Bytes{});
}

TEST_CASE("unused blocks give way to host memory that the program makes itself", "[away]") {
  Oversized t;
  t.added(kWindow, 1);
  const CUdeviceptr second = t.added(kTwo, 2);
  REQUIRE(t.memory.free(second) == CUDA_SUCCESS);
  REQUIRE(t.memory.uncharged() == kTwo);  // the unused blocks
  t.budget.left = kTwo;
  CHECK(t.memory.take_host(kTwo + kPiece) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.memory.take_host(kTwo) == CUDA_SUCCESS);
  CHECK(t.memory.uncharged() == kTwo);
  CHECK(t.budget.uncharged() == kTwo);
}

TEST_CASE("where the site permits no memory beyond the GPU, only the process counts its host memory",
          "[away]") {
  Oversized t;
  t.books.beyond_limit = 0;
  const unsigned asked = t.books.asked;
  REQUIRE(t.memory.take_host(kTwo) == CUDA_SUCCESS);
  CHECK(t.books.asked == asked);
  CHECK(t.beyond() == Bytes{});
  CHECK(t.budget.uncharged() == kTwo);
  t.added(kPiece, 1);
  t.memory.give_host(kTwo);
  CHECK(t.budget.uncharged() == Bytes{});
}

TEST_CASE("in a large allocation an operand ends where the next one begins, until it is freed", "[away]") {
  WorldOn<> t(gibibytes(4), SwapOptions{});  // handles of 64 MiB
  AwayMemory& away = *t.memory.away_memory();
  CUdeviceptr large = 0;
  REQUIRE(t.memory.allocate(&large, mebibytes(640)) == CUDA_SUCCESS);
  CHECK(away.operands(large).size() == 10);
  CHECK(away.operands(large + mebibytes(256).count).size() == 6);
  CHECK(away.operands(large).size() == 4);
  // If the size is known, all handles of the range are returned.
  CHECK(away.within(large, mebibytes(640)).size() == 10);
  CHECK(away.within(large + mebibytes(64).count, mebibytes(65)).size() == 2);
  CHECK(away.within(large, mebibytes(641)).empty());
  REQUIRE(t.memory.free(large) == CUDA_SUCCESS);
  CUdeviceptr next = 0;
  REQUIRE(t.memory.allocate(&next, mebibytes(640)) == CUDA_SUCCESS);
  CHECK(away.operands(next).size() == 10);
}

TEST_CASE("unused blocks give way to evicted memory and to the job itself", "[away]") {
  Oversized t;
  const CUdeviceptr first = t.added(kWindow, 1);
  const CUdeviceptr second = t.added(kWindow, 2);
  t.added(kTwo, 3);
  REQUIRE(t.memory.free(second) == CUDA_SUCCESS);
  t.budget.left = t.budget.uncharged();
  CHECK(t.budget.uncharged() == kBeyond);
  t.memory.set_allowed({});
  REQUIRE(t.memory.evict());
  CHECK(t.budget.uncharged() == kTwo);
  CHECK_FALSE(t.memory.last_eviction().no_room);
  t.memory.set_allowed(kWindow);
  REQUIRE(t.memory.restore());
  CHECK(holds(first, kWindow, 1));
  t.check_counts();

  t.budget.left = gibibytes(1);
  const CUdeviceptr fourth = t.added(kTwo, 4);
  REQUIRE(t.memory.free(fourth) == CUDA_SUCCESS);
  t.memory.tend();
  CHECK(t.budget.uncharged() == Bytes{2 * kTwo.count});
  t.budget.is_tight = true;
  t.memory.tend();
  CHECK(t.budget.uncharged() == kTwo);
  t.check_counts();
}

TEST_CASE("unused blocks beyond half a GiB are released, and all if nothing is away", "[away]") {
  SwapOptions options;  // handles of 64 MiB
  WorldOn<> t(gibibytes(4), options);
  t.books.limit = mebibytes(512).count;
  t.books.beyond_limit = gibibytes(2).count;
  t.memory.set_allowed(mebibytes(512));
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  CUdeviceptr third = 0;
  REQUIRE(t.memory.allocate(&first, mebibytes(512)) == CUDA_SUCCESS);
  REQUIRE(t.memory.allocate(&second, mebibytes(640)) == CUDA_SUCCESS);
  REQUIRE(t.memory.allocate(&third, mebibytes(64)) == CUDA_SUCCESS);
  CHECK(t.budget.uncharged() == mebibytes(704));
  REQUIRE(t.memory.free(second) == CUDA_SUCCESS);
  t.memory.tend();
  CHECK(t.budget.uncharged() == mebibytes(576));
  CHECK(t.device.host_physical() == mebibytes(576));
  // If no other memory is left, a block of another size gets the memory of the unused blocks.
  t.budget.left = mebibytes(576);
  REQUIRE(t.memory.allocate(&second, mebibytes(70)) == CUDA_SUCCESS);
  CHECK(t.budget.uncharged() == mebibytes(134));
  REQUIRE(t.memory.free(second) == CUDA_SUCCESS);
  REQUIRE(t.memory.free(third) == CUDA_SUCCESS);
  t.memory.tend();
  CHECK(t.budget.uncharged() == Bytes{});
  CHECK(t.device.host_physical() == Bytes{});
  CHECK(t.device.misuse() == "");
}

namespace {

constexpr unsigned kFirst = 1, kSecond = 2, kMade = 3;

// A driver that refuses several successive calls of one kind.
enum class Kind : std::uint8_t { none, map, unmap, access, retain, wait, copy };
class Refusing final : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  CUresult map(CUdeviceptr address, Bytes size, Physical physical) override {
    return refuses(Kind::map) ? CUDA_ERROR_UNKNOWN : FakeDevice::map(address, size, physical);
  }
  CUresult unmap(CUdeviceptr address, Bytes size) override {
    return refuses(Kind::unmap) ? CUDA_ERROR_UNKNOWN : FakeDevice::unmap(address, size);
  }
  CUresult allow_access(CUdeviceptr address, Bytes size) override {
    return refuses(Kind::access) ? CUDA_ERROR_UNKNOWN : FakeDevice::allow_access(address, size);
  }
  CUresult retain(Physical* physical, CUdeviceptr address) override {
    return refuses(Kind::retain) ? CUDA_ERROR_UNKNOWN : FakeDevice::retain(physical, address);
  }
  CUresult wait(Lane lane) override {
    return refuses(Kind::wait) ? CUDA_ERROR_UNKNOWN : FakeDevice::wait(lane);
  }
  CUresult copy(Lane lane, CUdeviceptr to, CUdeviceptr from, Bytes size) override {
    return refuses(Kind::copy) ? CUDA_ERROR_UNKNOWN : FakeDevice::copy(lane, to, from, size);
  }
  CUresult synchronize() override {
    const CUresult result = FakeDevice::synchronize();
    if (const auto what = std::exchange(after_synchronize, nullptr)) what();
    return result;
  }
  bool refuses(Kind asked) {
    if (asked != kind || refusals == 0 || (after != 0 && after-- != 0)) return false;
    --refusals;
    return true;
  }
  std::function<void()> after_synchronize;  // called once after a synchronization, to act as another thread
  Kind kind = Kind::none;
  unsigned after = 0;  // number of calls of this kind that succeed before the refusals
  unsigned refusals = 0;
};

// A process with memory of cuMemAlloc and memory that the program created, in the window and away.
struct Crowded : OversizedOn<Refusing> {
  CUdeviceptr first = added(Bytes{5 * kPiece.count}, kFirst);
  ProgramMemory::Id id = 0;
  CUdeviceptr views[2]{};
  CUdeviceptr second = 0;

  Crowded() {
    REQUIRE(program.create(&id, kTwo, {}) == CUDA_SUCCESS);
    CUmemAccessDesc access{};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (CUdeviceptr& view : views) {
      view = device.reserve_for_program(kTwo);
      REQUIRE(program.map(view, kTwo, id) == CUDA_SUCCESS);
      REQUIRE(program.set_access(view, &access, 1) == CUDA_SUCCESS);
    }
    fill(views[0], kTwo, kMade);
    second = added(kTwo, kSecond);
  }
  bool intact() const {
    return holds(first, Bytes{5 * kPiece.count}, kFirst) && holds(views[0], kTwo, kMade) &&
           holds(views[1], kTwo, kMade) && holds(second, kTwo, kSecond);
  }
  // Exchanges handles, and checks that the memory is in the state that the result states.
  void exchange(const std::vector<CUdeviceptr>& out, const std::vector<CUdeviceptr>& in) {
    const bool all = away.exchange(out, in);
    const std::vector<CUdeviceptr> are_away = all_away();
    REQUIRE(all == std::ranges::none_of(in, [&](CUdeviceptr each) {
              return std::ranges::find(are_away, each) != are_away.end();
            }));
    check_counts();
    if (!all_usable()) {
      REQUIRE((device.has_failed() || device.kind != Kind::none));
      for (int attempt = 0; attempt < 20 && !memory.restore(); ++attempt) check_counts();
      check_counts();
    }
    REQUIRE(all_usable());
    REQUIRE(intact());
  }
};

// Performs two exchanges, a turn and the end of the program. Returns true if a call of the exchanges failed
// as injected.
bool live(Crowded& t) {
  const std::vector<CUdeviceptr> here = t.all_here();
  const std::vector<CUdeviceptr> there = t.all_away();
  REQUIRE(here.size() + there.size() == 9);
  t.exchange({here[0], here[1], here[3], here[4]}, {there[0], there[1], there[2], there[3]});
  t.exchange(t.all_here(), t.all_away());
  const bool failed = t.device.has_failed();
  t.device.fail_call(0);
  t.device.refusals = 0;
  t.memory.set_allowed({});
  REQUIRE(t.memory.evict());
  t.check_counts();
  t.memory.set_allowed(kWindow);
  REQUIRE(t.memory.restore());
  t.check_counts();
  REQUIRE(t.intact());
  REQUIRE(t.memory.free(t.first) == CUDA_SUCCESS);
  REQUIRE(t.memory.free(t.second) == CUDA_SUCCESS);
  REQUIRE(t.program.unmap(t.views[0]) == CUDA_SUCCESS);
  REQUIRE(t.program.unmap(t.views[1]) == CUDA_SUCCESS);
  REQUIRE(t.program.release(t.id) == CUDA_SUCCESS);
  t.check_counts();
  REQUIRE(t.device.physical() == Bytes{});
  return failed;
}

// Lets the device return errors for call number `fail` and for the next `more` calls. Returns true if call
// number `fail` was made during the exchanges.
bool exchange_with_failures(unsigned fail, unsigned more) {
  Crowded t;
  t.device.fail_call(fail, CUDA_ERROR_UNKNOWN, more);
  return live(t);
}

}  // namespace

TEST_CASE("no failure of the driver during an exchange loses a byte", "[away]") {
  const unsigned more = GENERATE(0u, 1u);
  unsigned n = 1;
  while (exchange_with_failures(n, more)) ++n;
  INFO(n << " calls");
  CHECK(n > 80);
}

TEST_CASE("a driver that refuses one kind of call for a while loses no byte", "[away]") {
  for (const Kind kind : {Kind::map, Kind::unmap, Kind::access, Kind::retain, Kind::wait, Kind::copy})
    for (const unsigned refusals : {1u, 2u, 4u, 7u, 13u})
      for (unsigned after = 0; after < 30; ++after) {
        INFO("kind " << static_cast<int>(kind) << ", " << refusals << " refusals after " << after);
        Crowded t;
        t.device.kind = kind;
        t.device.refusals = refusals;
        t.device.after = after;
        live(t);
      }
}

TEST_CASE("a handle that has entered without its contents can be evicted", "[away]") {
  Crowded t;
  t.device.kind = Kind::wait;
  t.device.after = 1;
  t.device.refusals = 2;  // refuses the wait for the copy to the entering handle, and the wait after this
                          // failure
  t.away.exchange({t.first}, {t.second});
  REQUIRE_FALSE(t.all_usable());
  t.check_counts();
  t.memory.set_allowed({});
  REQUIRE(t.memory.evict());
  t.check_counts();
  t.added(kPiece, 9);  // must not get the block with the contents
  t.memory.set_allowed(kWindow);
  REQUIRE(t.memory.restore());
  t.check_counts();
  CHECK(t.intact());
}

// The thread that frees memory has waited for the GPU, and next waits for the turn thread. Meanwhile the
// driver refuses to wait for the turn thread's copies.
TEST_CASE("memory is freed only after the copies of an exchange that failed meanwhile", "[away]") {
  const bool leaves = GENERATE(true, false);
  Crowded t;
  const CUdeviceptr freed = leaves ? t.first : t.second;
  const Bytes size = leaves ? Bytes{5 * kPiece.count} : kTwo;
  t.device.after_synchronize = [&] {
    t.device.kind = Kind::wait;
    t.device.refusals = 8;
    const CUdeviceptr leaver = leaves ? t.first : t.all_here().back();
    t.away.exchange({leaver}, {leaves ? t.second : freed});
    t.device.refusals = 0;
  };
  const CUresult result = t.memory.free(freed).value_or(CUDA_ERROR_INVALID_VALUE);
  CHECK(t.device.misuse() == "");
  CHECK(result == CUDA_SUCCESS);
  CHECK_FALSE(t.memory.find(freed + size.count - 1));
  for (int attempt = 0; attempt < 20 && !t.memory.restore(); ++attempt) {
  }
  REQUIRE(t.all_usable());
  t.check_counts();
  CHECK(holds(t.views[1], kTwo, kMade));
  CHECK(
      holds(leaves ? t.second : t.first, leaves ? kTwo : Bytes{5 * kPiece.count}, leaves ? kSecond : kFirst));
}
