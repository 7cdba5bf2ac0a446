// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "arbiter/ledger/energy_book.h"
#include "arbiter/ledger/history.h"
#include "tests/unit/arbiter/ledger/some_records.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

constexpr GpuUuid kFirstGpu{{1}};
constexpr GpuUuid kSecondGpu{{2}};
constexpr EnergyBook::Key kOne{TenantId{1}, kFirstGpu};
constexpr EnergyBook::Key kTwo{TenantId{2}, kFirstGpu};

// A book in which the first GPU's counter is read at 10 s for the first time.
struct ReadBook : EnergyBook {
  ReadBook() { read(kFirstGpu, {5000}, 10s); }
};

TEST_CASE("Energy counts for the tenant whose lease was held, and for nobody while no lease was held") {
  ReadBook book;
  book.grant(kOne, 10s);
  book.release(kOne, 10250ms);
  book.grant(kTwo, 10500ms);
  book.read(kFirstGpu, {9000}, 11s);
  CHECK(book.of(kOne) == Energy{1000});
  CHECK(book.of(kTwo) == Energy{2000});
  CHECK(book.unleased(kFirstGpu) == Energy{1000});
  book.read(kFirstGpu, {9100}, 12s);  // the lease continues
  CHECK(book.of(kTwo) == Energy{2100});
  CHECK(book.unleased(kFirstGpu) == Energy{1000});
}

TEST_CASE("Tenants that hold leases at the same time share the power of this time equally") {
  ReadBook book;
  book.grant(kOne, 10s);
  book.grant(kTwo, 10500ms);
  book.read(kFirstGpu, {9000}, 11s);
  CHECK(book.of(kOne) == Energy{3000});
  CHECK(book.of(kTwo) == Energy{1000});
}

TEST_CASE("A tenant counts once, however many of its steps hold a lease") {
  ReadBook book;
  book.grant(kOne, 10s);
  book.grant(kOne, 10s);
  book.grant(kTwo, 10s);
  book.release(kOne, 10500ms);
  book.read(kFirstGpu, {9000}, 11s);
  CHECK(book.of(kOne) == Energy{2000});
  CHECK(book.of(kTwo) == Energy{2000});
}

TEST_CASE("The first reading, a counter that starts again and two readings at once attribute nothing") {
  EnergyBook book;
  book.grant(kOne, 1s);
  book.read(kFirstGpu, {5000}, 10s);
  CHECK(book.of(kOne) == Energy{});
  book.read(kFirstGpu, {100}, 11s);
  CHECK(book.of(kOne) == Energy{});
  book.read(kFirstGpu, {300}, 11s);
  CHECK(book.of(kOne) == Energy{});
  book.read(kFirstGpu, {700}, 12s);
  CHECK(book.of(kOne) == Energy{600});
  CHECK(book.unleased(kFirstGpu) == Energy{});
}

TEST_CASE("A counter that stands still for a while later has the energy of the whole time") {
  ReadBook book;
  book.grant(kOne, 10s);
  book.read(kFirstGpu, {5000}, 12s);
  book.release(kOne, 12s);
  book.grant(kTwo, 12s);
  book.read(kFirstGpu, {5000}, 13s);
  book.read(kFirstGpu, {8000}, 13s);
  CHECK(book.of(kOne) == Energy{2000});
  CHECK(book.of(kTwo) == Energy{1000});
}

TEST_CASE("No energy counts twice if the counter steps back and forth") {
  EnergyBook book;
  constexpr std::uint64_t kBase = 1'000'000'000;
  book.grant(kOne, 10s);
  book.read(kFirstGpu, {kBase}, 10s);
  for (unsigned i = 1; i <= 20; ++i)
    book.read(kFirstGpu, {kBase + i * 1000 - (i % 2 == 1 ? 500'000 : 0)}, 10s + i * 1s);
  CHECK(book.of(kOne) == Energy{20'000});
  CHECK(book.unleased(kFirstGpu) == Energy{});
}

TEST_CASE("A counter that briefly shows more than a GPU can consume adds no energy") {
  ReadBook book;
  book.grant(kOne, 10s);
  book.read(kFirstGpu, {6000}, 11s);
  book.read(kFirstGpu, {~std::uint64_t{1}}, 12s);
  book.read(kFirstGpu, {7000}, 13s);
  book.read(kFirstGpu, {8000}, 14s);
  CHECK(book.of(kOne) == Energy{3000});
}

TEST_CASE("A counter that stays lower counts again after a while") {
  EnergyBook book;
  book.grant(kOne, 10s);
  book.read(kFirstGpu, {1'000'000'000}, 10s);
  for (unsigned i = 1; i <= 100; ++i) book.read(kFirstGpu, {100'000'000 + i * 1000}, 10s + i * 1s);
  CHECK(book.of(kOne) > Energy{80'000});
  CHECK(book.of(kOne) < Energy{100'000});
}

TEST_CASE("The parts are never more than the whole, whatever the counter does") {
  std::uint64_t state = 1;
  const auto any = [&](std::uint64_t most) {
    state = state * 6364136223846793005 + 1442695040888963407;
    return (state >> 33) % (most + 1);
  };
  for (unsigned world = 0; world < 200; ++world) {
    EnergyBook book;
    std::uint64_t counter = 2'000'000'000, highest = counter;
    const std::uint64_t first = counter;
    book.read(kFirstGpu, {counter}, 1s);
    std::map<std::uint64_t, bool> holds;
    for (Nanoseconds now = 1s; now < 60s; now += std::chrono::milliseconds(any(900))) {
      const std::uint64_t tenant = 1 + any(2);
      const EnergyBook::Key key{TenantId{tenant}, kFirstGpu};
      if (any(1) == 1) {
        holds[tenant] ? book.release(key, now) : book.grant(key, now);
        holds[tenant] = !holds[tenant];
      } else {
        counter += any(1) * any(300'000);
        highest = std::max(highest, counter);
        book.read(kFirstGpu, {any(4) == 0 ? counter - any(100'000) : counter}, now);
      }
    }
    std::uint64_t sum = book.unleased(kFirstGpu).millijoules;
    for (const auto& [key, energy] : book.all()) sum += energy.millijoules;
    CHECK(sum <= highest - first + 4);  // each of the four values is rounded
  }
}

TEST_CASE("A lease that ended in retrospect removes no energy") {
  ReadBook book;
  book.grant(kOne, 10s);
  book.read(kFirstGpu, {6000}, 11s);
  book.release(kOne, 10s);
  book.read(kFirstGpu, {9000}, 12s);
  CHECK(book.of(kOne) == Energy{1000});
  CHECK(book.unleased(kFirstGpu) == Energy{3000});
}

TEST_CASE("Each GPU has its own energy") {
  ReadBook book;
  const EnergyBook::Key other{TenantId{1}, kSecondGpu};
  book.grant(kOne, 10s);
  book.grant(other, 10s);
  book.read(kSecondGpu, {0}, 10s);
  book.read(kFirstGpu, {5001}, 11s);
  book.read(kSecondGpu, {20}, 11s);
  CHECK(book.of(TenantId{1}) == std::map<GpuUuid, Energy>{{kFirstGpu, {1}}, {kSecondGpu, {20}}});
  CHECK(book.of(TenantId{2}).empty());
}

TEST_CASE("Parts of a millijoule are not lost") {
  ReadBook book;
  book.grant(kOne, 10s);
  book.grant(kTwo, 10s);
  for (unsigned i = 1; i <= 10; ++i) book.read(kFirstGpu, {5000 + i}, 10s + i * 1s);
  CHECK(book.of(kOne) == Energy{5});
  CHECK(book.of(kTwo) == Energy{5});
}

TEST_CASE("Changed energies are news every 15 seconds, or at once at the end") {
  ReadBook book;
  CHECK(book.take_news(100s).empty());
  book.grant(kOne, 110s);
  book.read(kFirstGpu, {6000}, 114s);
  CHECK(book.take_news(114s).empty());
  using News = std::vector<std::pair<EnergyBook::Key, Energy>>;
  CHECK(book.take_news(115s) == News{{kOne, book.of(kOne)}});
  CHECK(book.take_news(130s).empty());
  book.read(kFirstGpu, {7000}, 131s);
  CHECK(book.take_news(131s).empty());
  book.hasten();
  CHECK(book.take_news(131s) == News{{kOne, book.of(kOne)}});
}

TEST_CASE("A forgotten tenant has no energy, and the others keep theirs") {
  ReadBook book;
  book.carry(kOne, {7});
  book.carry(kTwo, {8});
  book.grant(kOne, 10s);
  book.forget(TenantId{1});
  CHECK(book.all() == std::map<EnergyBook::Key, Energy>{{kTwo, {8}}});
  book.hasten();
  CHECK(book.take_news(11s).empty());
}

TEST_CASE("Energies outlive the arbiter and its older files, until the job runs anew") {
  History old;
  old.add(test::job_record(1s, 1, 11));
  old.add({.at = 2s, .what = EnergyRecord{.tenant = TenantId{1}, .gpu = kFirstGpu, .energy = {77}}});
  History fresh;
  for (const Record& record : old.checkpoint(test::even_ones_live)) fresh.add(record);
  CHECK(fresh.figures.energy().of(kOne) == Energy{77});
  fresh.add({.at = 3s, .what = BeginRecord{.tenant = TenantId{1}}});
  CHECK(fresh.figures.energy().of(kOne) == Energy{});
}

}  // namespace
}  // namespace sharedgpu
