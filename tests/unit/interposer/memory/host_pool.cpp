// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/host_pool.h"

#include <array>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>

#include "tests/unit/interposer/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

constexpr Bytes kGranule = kibibytes(4);
constexpr Bytes kSlab{64 * kGranule.count};

Bytes size_of(const HostRoom& room) {
  Bytes total;
  for (const HostPiece& piece : room) total += piece.size;
  return total;
}

struct Pool {
  FakeDevice device;
  FakeBudget budget;
  FakeHost host;
  HostPool pool{device, budget, host, kGranule};
};

}  // namespace

TEST_CASE("room comes from whole pinned slabs", "[pool]") {
  Pool t;
  const std::optional<HostRoom> room = t.pool.take(kibibytes(12));
  REQUIRE(room);
  REQUIRE(room->size() == 1);
  CHECK(size_of(*room) == kibibytes(12));
  std::memset(room->front().data, 1, kibibytes(12).count);
  CHECK(t.pool.held() == kSlab);
  CHECK(t.pool.used() == kibibytes(12));
  CHECK(t.device.pinned() == kSlab);
  t.pool.give(*room);
  CHECK(t.pool.held() == kSlab);
  CHECK(t.pool.used() == Bytes{});
}

TEST_CASE("room larger than a slab comes in pieces", "[pool]") {
  Pool t;
  const Bytes size = kSlab + kSlab + kGranule;
  const std::optional<HostRoom> room = t.pool.take(size);
  REQUIRE(room);
  CHECK(room->size() == 3);
  CHECK(size_of(*room) == size);
  CHECK(t.pool.held().count == 3 * kSlab.count);
}

TEST_CASE("holes are used", "[pool]") {
  Pool t;
  std::vector<HostRoom> rooms;
  for (int i = 0; i < 64; ++i) rooms.push_back(*t.pool.take(kGranule));
  for (int i = 0; i < 64; i += 2) t.pool.give(rooms[i]);
  const std::optional<HostRoom> scattered = t.pool.take({32 * kGranule.count});
  REQUIRE(scattered);
  CHECK(scattered->size() == 32);
  CHECK(t.pool.held() == kSlab);
  CHECK(t.pool.used() == kSlab);
}

TEST_CASE("the pool never exceeds the budget", "[pool]") {
  Pool t;
  SECTION("no room") {
    t.budget.left = kGranule - Bytes{1};
    CHECK_FALSE(t.pool.take(kGranule));
    CHECK(t.pool.held() == Bytes{});
  }
  SECTION("less room than a slab: just what is needed") {
    t.budget.left = kibibytes(12);
    CHECK(t.pool.take(kibibytes(8)));
    CHECK(t.pool.held() == kibibytes(8));
    CHECK(t.device.pinned() == kibibytes(8));
  }
  SECTION("less room than a slab: whole granules") {
    t.budget.left = kibibytes(12);
    t.pool.hurry(kibibytes(7));
    CHECK(t.pool.held() == kibibytes(8));
  }
  SECTION("what is held already is no growth") {
    REQUIRE(t.pool.take(kGranule));
    t.budget.left = {};
    CHECK(t.pool.take(kGranule));
    CHECK_FALSE(t.pool.take(kSlab));
    CHECK(t.pool.used() == kibibytes(8));
  }
}

TEST_CASE("memory that cannot be pinned is not used", "[pool]") {
  Pool t;
  t.device.fail_call(1, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_FALSE(t.pool.take(kGranule));
  CHECK(t.pool.held() == Bytes{});
  CHECK(t.host.unmapped == 1);
  CHECK(t.pool.take(kGranule));
}

TEST_CASE("a pool that is destroyed ends its threads, and gives everything back", "[pool]") {
  FakeDevice device;
  FakeBudget budget;
  FakeHost host;
  host.beside = true;
  for (int round = 0; round < 10; ++round) {
    HostPool pool(device, budget, host, kGranule);
    pool.prepare({4 * kSlab.count}, 1);
    pool.hurry({8 * kSlab.count});
    if (round % 2 == 0) REQUIRE(pool.take({(5 + round % 3) * kSlab.count}));
  }
  CHECK(device.pinned() == Bytes{});
  CHECK(host.mapped == host.unmapped);
  CHECK(device.misuse().empty());
}

TEST_CASE("zero sharers count as one", "[pool]") {
  Pool t;
  t.pool.prepare(kSlab, 0);
  CHECK(t.pool.held() == kSlab);
  CHECK(t.pool.take(kSlab + kGranule));
  CHECK(t.pool.held() == kSlab + kSlab);
}

TEST_CASE("whichever slab is free goes back", "[pool]") {
  Pool t;
  const HostRoom rooms[] = {*t.pool.take(kSlab), *t.pool.take(kSlab), *t.pool.take(kSlab)};
  t.pool.give(rooms[GENERATE(0, 1, 2)]);
  t.pool.tend(false);
  CHECK(t.pool.held() == kSlab + kSlab);
  CHECK(t.pool.used() == kSlab + kSlab);
  CHECK(t.host.unmapped == 1);
}

TEST_CASE("room that an eviction is about to take does not go back", "[pool]") {
  Pool t;
  t.pool.hurry(kSlab + kSlab);
  t.budget.is_tight = true;
  t.pool.tend(false);
  CHECK(t.pool.held() == kSlab + kSlab);
  CHECK(t.host.unmapped == 0);
  t.pool.hurry({});
  t.pool.tend(false);
  CHECK(t.pool.held() == Bytes{});
}

TEST_CASE("room beyond the pool's bound goes back, expected or not", "[pool]") {
  Pool t;
  t.pool.prepare({4 * kSlab.count}, 1);
  CHECK(t.pool.held().count == 4 * kSlab.count);
  t.pool.bound(kSlab + kSlab);
  t.pool.tend(false);
  CHECK(t.pool.held() == kSlab + kSlab);
}

TEST_CASE("free slabs go back, beyond what is to be kept", "[pool]") {
  Pool t;
  const HostRoom first = *t.pool.take(kSlab);
  const HostRoom second = *t.pool.take(kSlab);
  const HostRoom third = *t.pool.take(kSlab);
  SECTION("none is free") { t.pool.trim({}); }
  t.pool.give(first);
  t.pool.give(second);
  SECTION("all free ones") {
    t.pool.trim({});
    CHECK(t.pool.held() == kSlab);
    CHECK(t.device.pinned() == kSlab);
  }
  SECTION("some are kept") {
    t.pool.trim(kSlab + kGranule);
    CHECK(t.pool.held() == kSlab + kSlab);
  }
  SECTION("a slab that cannot be unpinned stays of use") {
    t.device.fail_call(1);
    t.pool.trim({});
    CHECK(t.pool.held().count == 3 * kSlab.count);
    REQUIRE(t.pool.take(kSlab + kSlab));
    CHECK(t.pool.held().count == 3 * kSlab.count);
  }
  CHECK(t.pool.used() >= kSlab);
  CHECK(t.device.misuse().empty());
}

TEST_CASE("prepare() grows the pool with one thread, and the pool keeps the memory", "[pool]") {
  Pool t;
  t.pool.prepare(kSlab + kGranule, 1);
  CHECK(t.pool.held() == kSlab + kSlab);
  CHECK(t.host.most_threads == 1);
  CHECK(t.host.started == 1);
  t.pool.trim({});
  t.pool.tend(false);
  CHECK(t.pool.held() == kSlab + kSlab);
  const HostRoom room = *t.pool.take(kSlab + kSlab);
  CHECK(t.device.pinned() == kSlab + kSlab);

  SECTION("more is expected") {
    t.pool.prepare({5 * kSlab.count}, 1);
    CHECK(t.pool.held().count == 5 * kSlab.count);
  }
  SECTION("less is expected: what holds contents stays") {
    t.pool.prepare({}, 1);
    t.pool.tend(false);
    CHECK(t.pool.held() == kSlab + kSlab);
    t.pool.give(room);
    t.pool.tend(false);
    CHECK(t.pool.held() == Bytes{});
    CHECK(t.device.pinned() == Bytes{});
  }
  CHECK(t.host.started <= 2);
}

TEST_CASE("a program that waits leaves the pool its processors", "[pool]") {
  Pool t;
  t.host.spare = 4;
  t.pool.prepare(kSlab, 1);
  CHECK(t.pool.held() == kSlab);
  CHECK(t.host.most_threads == 4);
}

TEST_CASE("the memory that the last turn needed is kept while evictions are expected", "[pool]") {
  Pool t;
  t.pool.prepare(kSlab, 1);
  t.pool.give(*t.pool.take({3 * kSlab.count}));
  t.pool.trim(kSlab + kSlab);
  t.pool.tend(false);
  CHECK(t.pool.held() == kSlab + kSlab);
  t.pool.prepare({}, 1);
  t.pool.tend(false);
  CHECK(t.pool.held() == Bytes{});
}

TEST_CASE("memory that the pool does not need goes back one slab at a time while the program works",
          "[pool]") {
  Pool t;
  t.pool.prepare({4 * kSlab.count}, 1);
  t.pool.prepare({}, 1);
  t.pool.tend(true);
  CHECK(t.pool.held().count == 3 * kSlab.count);
  SECTION("all of it when it does not work") {
    t.pool.tend(false);
    CHECK(t.pool.held() == Bytes{});
  }
  SECTION("all of it when the job needs the memory") {
    t.budget.is_tight = true;
    t.pool.tend(true);
    CHECK(t.pool.held() == Bytes{});
  }
  SECTION("all of it in the end") {
    for (int i = 0; i < 3; ++i) t.pool.tend(true);
    CHECK(t.pool.held() == Bytes{});
  }
}

TEST_CASE("ahead of need the pool takes only what the job can spare", "[pool]") {
  Pool t;
  t.budget.is_tight = true;
  t.pool.prepare(kSlab, 1);
  CHECK(t.pool.held() == Bytes{});
  SECTION("an eviction takes more") {
    t.pool.hurry(kSlab + kGranule);
    CHECK(t.pool.held() == kSlab + kSlab);
    CHECK(t.host.most_threads > 1);
    t.pool.hurry({});
    t.pool.tend(false);
    CHECK(t.pool.held() == Bytes{});
  }
  t.budget.is_tight = false;
  t.pool.tend(false);
  t.pool.tend(false);
  const bool rested = t.pool.held() == Bytes{};
  CHECK(rested);  // the pool does not grow again at once, since it would alternately grow and shrink
  for (int i = 0; i < 60; ++i) t.pool.tend(false);
  CHECK(t.pool.held() == kSlab);
}

TEST_CASE("a refused growth ahead of need is retried later, and for an eviction at once", "[pool]") {
  Pool t;
  if (GENERATE(true, false))
    t.device.fail_call(1, CUDA_ERROR_OUT_OF_MEMORY);
  else
    t.host.fail_from = 2;  // the first call, which succeeds, starts the thread
  t.pool.prepare(kSlab, 1);
  CHECK(t.pool.held() == Bytes{});
  t.host.fail_from = 0;
  SECTION("an eviction") { t.pool.hurry(kGranule); }
  SECTION("later") {
    for (int i = 0; i < 59; ++i) t.pool.tend(false);
    CHECK(t.pool.held() == Bytes{});
    t.pool.tend(false);
  }
  CHECK(t.pool.held() == kSlab);
  CHECK(t.device.misuse().empty());
}

TEST_CASE("without a thread an eviction grows the pool itself", "[pool]") {
  Pool t;
  t.host.fail_from = 1;
  t.pool.prepare(kSlab, 1);
  t.pool.hurry(kSlab);
  CHECK(t.pool.held() == Bytes{});
  CHECK_FALSE(t.pool.take(kGranule));  // map() fails, too
  t.host.fail_from = 0;
  CHECK(t.pool.take(kGranule));
  CHECK(t.pool.held() == kSlab);
  CHECK(t.host.started == 0);
  t.pool.prepare(kSlab + kSlab, 1);
  CHECK(t.pool.held() == kSlab + kSlab);
}

TEST_CASE("an eviction takes room as the thread makes it", "[pool]") {
  Pool t;
  t.host.beside = true;
  for (int turn = 0; turn < 3; ++turn) {
    t.pool.prepare({8 * kSlab.count}, 1);
    t.pool.hurry({16 * kSlab.count});
    std::vector<HostRoom> rooms;
    for (int i = 0; i < 20; ++i) {  // takes more slabs than hurry() announced
      rooms.push_back(*t.pool.take(kSlab));
      std::memset(rooms.back().front().data, i, kGranule.count);
    }
    t.pool.hurry({});
    for (const HostRoom& room : rooms) t.pool.give(room);
    t.pool.trim({20 * kSlab.count});
    CHECK(t.pool.held().count == 20 * kSlab.count);
    t.pool.prepare({}, 1);
    t.pool.tend(false);
    for (int look = 0; look < 10000 && t.pool.held() != Bytes{}; ++look)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the pool's thread frees the slabs
    CHECK(t.pool.held() == Bytes{});
  }
  CHECK(t.device.misuse().empty());
}

TEST_CASE("while a slab is pinned the next one is touched", "[pool]") {
  // A device that pins each of the first three slabs only after the next slab has been mapped, or after 5 s
  // if no next slab is mapped.
  struct Patient final : FakeDevice {
    explicit Patient(const FakeHost& its) : host(its) {}
    CUresult pin_host(std::byte* data, Bytes size) override {
      const unsigned before = ++pins;
      for (int look = 0; look < 5000 && host.mapped == before && before < 4; ++look)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (host.mapped > before) ++met;
      return FakeDevice::pin_host(data, size);
    }
    const FakeHost& host;
    std::atomic<unsigned> pins{0};
    std::atomic<unsigned> met{0};
  };
  FakeBudget budget;
  FakeHost host;
  host.beside = true;
  Patient device(host);
  HostPool pool(device, budget, host, kGranule);
  pool.hurry({4 * kSlab.count});
  REQUIRE(pool.take({4 * kSlab.count}));
  CHECK(device.met == 3);
}

TEST_CASE("two threads that grow the pool at the same time do not exceed its goal together", "[pool]") {
  for (int round = 0; round < 200; ++round) {
    Pool t;
    t.host.beside = true;
    t.pool.hurry(kSlab);
    REQUIRE(t.pool.take(kSlab));
    CHECK(t.pool.bound(gibibytes(1)) == kSlab);
  }
}

TEST_CASE("the pool never grows beyond its bound", "[pool]") {
  Pool t;
  CHECK(t.pool.bound(kSlab + kibibytes(12)) == Bytes{});
  REQUIRE(t.pool.take(kSlab + kibibytes(8)));
  CHECK(t.pool.held() == kSlab + kibibytes(12));  // not two slabs
  CHECK_FALSE(t.pool.take(kibibytes(8)));
  REQUIRE(t.pool.take(kibibytes(4)));
  CHECK(t.pool.bound(kSlab) == kSlab + kibibytes(12));
  CHECK_FALSE(t.pool.take(kibibytes(4)));
  t.pool.bound({4 * kSlab.count});
  CHECK(t.pool.take(kSlab));
  CHECK(t.pool.bound({}) == kSlab + kSlab + kibibytes(12));
}

TEST_CASE("the pool leaves the job the memory that the job is just taking for itself", "[pool]") {
  using namespace std::chrono_literals;
  Pool t;
  const Bytes before{20 * kSlab.count};
  t.host.time = 100s;
  t.budget.left = before;
  t.pool.watch();
  t.host.time += 100ms;
  t.budget.left = before - kSlab;  // the job takes ten slabs a second
  t.pool.watch();
  SECTION("a second's worth of it") {
    t.budget.left = {10 * kSlab.count};
    CHECK_FALSE(t.pool.take(kGranule));
    t.budget.left = {10 * kSlab.count + kGranule.count};
    CHECK(t.pool.take(kGranule));
    CHECK(t.pool.held() == kGranule);
  }
  SECTION("also when the pool has grown meanwhile") {
    t.host.time += 2s;
    t.budget.left = before;
    CHECK(t.pool.take(kSlab));
    t.budget.left -= kSlab;
    t.host.time += 100ms;
    t.pool.watch();
    t.host.time += 100ms;
    t.budget.left -= kSlab;
    t.pool.watch();
    t.budget.left = {10 * kSlab.count};
    CHECK_FALSE(t.pool.take(kGranule));
  }
  SECTION("and no more when it has stopped") {
    t.budget.left = kSlab;
    t.host.time += 2s;
    CHECK(t.pool.take(kSlab));
  }
  SECTION("what the pool takes is not the job's") {
    t.host.time += 2s;
    t.budget.left = before;
    t.pool.watch();
    for (int i = 1; i <= 18; ++i) {
      t.host.time += 50ms;
      CHECK(t.pool.take(kSlab));
      t.budget.left -= kSlab;
    }
  }
  SECTION("nor is what the pool is just giving back") {
    t.host.time += 2s;
    t.pool.trim(kSlab);
    t.budget.left = before;
    t.pool.watch();
    t.host.before_unmap = [&t] {
      t.host.time += 50ms;
      t.pool.watch();
    };
    t.pool.trim({});
    CHECK(t.pool.held() == Bytes{});
    t.budget.left = {2 * kSlab.count};
    CHECK(t.pool.take(kSlab));
  }
  SECTION("nor is what other processes of the job take for theirs") {
    t.pool.prepare({}, 2);
    t.host.time += 2s;
    t.budget.left = before;
    t.pool.watch();
    t.host.time += 50ms;
    t.budget.left = {2 * kSlab.count};
    CHECK(t.pool.take(kSlab));
  }
}

TEST_CASE("a pool that was barred grows again when the job has had memory for a while", "[pool]") {
  Pool t;
  t.pool.prepare(kSlab, 1);
  t.pool.bar();
  t.pool.hurry(kSlab + kSlab);
  CHECK(t.pool.held() == kSlab);
  CHECK_FALSE(t.pool.take(kSlab + kGranule));
  t.budget.is_tight = t.budget.is_used_up = true;
  for (int i = 0; i < 100; ++i) t.pool.tend(false);
  t.budget.is_used_up = false;  // the job has little memory left, but more than the margin
  for (int i = 0; i < 59; ++i) t.pool.tend(false);
  CHECK_FALSE(t.pool.take(kSlab + kGranule));
  t.pool.tend(false);
  CHECK(t.pool.take({t.pool.held().count + kGranule.count}));
}

TEST_CASE("many sessions of a job take small slabs", "[pool]") {
  Pool t;
  t.pool.prepare({}, 4);
  REQUIRE(t.pool.take(kGranule));
  CHECK(t.pool.held().count == kSlab.count / 4);
  t.pool.prepare({}, 1000);
  REQUIRE(t.pool.take({16 * kGranule.count}));
  CHECK(t.pool.held().count == kSlab.count / 4 + kGranule.count);

  t.budget.left = {1000 * kGranule.count - 1};
  CHECK_FALSE(t.pool.take(kGranule));
  t.budget.left += Bytes{1};
  CHECK(t.pool.take(kGranule));
}

namespace {

// The host memory of a job. Before a process allocates, other processes may run, and check how much is left.
class SharedLimit final : public HostBudget, public HostSystem {
 public:
  explicit SharedLimit(Bytes limit) : limit_(limit) {}
  Bytes room() const override { return minus(limit_, {used_.load()}); }
  bool tight(Bytes /*more*/) const override { return false; }
  bool used_up() const override { return false; }
  Bytes used() const override { return {used_.load()}; }
  std::optional<Bytes> limit() const override { return limit_; }
  std::optional<Bytes> job_limit() const override { return limit_; }

  std::byte* map(Bytes size, unsigned threads) override {
    std::this_thread::yield();  // meanwhile the other processes check room(), too
    const std::uint64_t now = used_ += size.count;
    if (now > limit_.count) passed = true;
    return real_.map(size, threads);
  }
  void unmap(std::byte* data, Bytes size) override {
    real_.unmap(data, size);
    used_ -= size.count;
  }
  bool start(Thread& thread, void* (*work)(void*), void* argument) override {
    return real_.start(thread, work, argument);
  }
  void join(Thread& thread) override { real_.join(thread); }
  Nanoseconds now() const override { return {}; }

  std::atomic<bool> passed{false};

 private:
  const Bytes limit_;
  std::atomic<std::uint64_t> used_{0};
  LinuxHost real_;
};

}  // namespace

TEST_CASE("processes that grow at once do not pass the limit together", "[pool]") {
  constexpr unsigned kSessions = 4;
  for (int round = 0; round < 20; ++round) {
    SharedLimit job({10 * kSlab.count + static_cast<std::uint64_t>(round) * kGranule.count});
    std::array<FakeDevice, kSessions> devices;
    std::vector<std::unique_ptr<HostPool>> pools;
    for (FakeDevice& device : devices)
      pools.push_back(std::make_unique<HostPool>(device, job, job, kGranule));
    std::vector<std::thread> evictions;
    for (const auto& pool : pools) pool->prepare(kSlab + kSlab, kSessions);
    for (const auto& pool : pools)
      evictions.emplace_back([&pool] {
        pool->hurry({20 * kSlab.count});
        while (pool->take(kGranule)) continue;
        pool->hurry({});
      });
    for (std::thread& eviction : evictions) eviction.join();
    Bytes held;
    for (const auto& pool : pools) held += pool->held();
    CHECK_FALSE(job.passed);
    CHECK(held + kSlab > job.limit());  // less than one slab of the limit is unused
  }
}
