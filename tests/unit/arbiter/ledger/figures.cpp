// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/figure_book.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/unit/arbiter/core/bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

constexpr TenantId kFirst{1};
constexpr TenantId kSecond{2};

// A Bench, whose GPUs have a capacity of 100 MiB, and a FigureBook of its tenants. Most tests add two tenants
// of 80 MiB.
struct Watched : Bench {
  FigureBook figures;

  void look() { figures.observe(core->sighting(), now); }
  template <class Do>
  void after(Nanoseconds time, Do something) {
    now += time;
    something();
    look();
  }
};

TEST_CASE("The backends of each tenant and step are recorded") {
  FigureBook figures;
  const StepName first{.job = 9, .step = 0};
  const StepName second{.job = 9, .step = 1};
  figures.came(kFirst, first, Backend::swap);
  figures.came(kFirst, second, Backend::native);
  CHECK(figures.of(kFirst).backends == 5);
  CHECK(figures.of(kFirst, first).backends == 1);
  CHECK(figures.of(kFirst, second).backends == 4);
  CHECK(figures.of(kSecond).backends == 0);
}

TEST_CASE("The times of entries and evictions are recorded when they end") {
  Watched w;
  w.settle_in(1, 1, 80);
  w.come(2, 2);
  w.attach(2);
  w.grow(2, 80, 0);
  w.release(2, 0, false);
  w.now += 1min;
  w.look();
  w.want(2);
  REQUIRE_FALSE(w.open(1));
  w.release(1, 80, true);
  w.look();
  w.figures.take_news(w.now);
  REQUIRE(w.tenant(2).phase == Phase::entering);
  w.after(3s, [&] { w.tell(1, 80, 20); });
  CHECK(w.figures.of(kFirst).evicting == 3s);
  const auto news = w.figures.take_news(w.now);
  CHECK(std::any_of(news.begin(), news.end(), [](const auto& entry) {
    return entry.first.first == kFirst && entry.second.evicting == 3s;
  }));
  w.after(2s, [&] { w.ready(2, 80); });
  REQUIRE(w.open(2));
  CHECK(w.figures.of(kSecond).entering == 5s);
  w.after(1s, [] {});
  CHECK(w.figures.of(kSecond).entering == 5s);
  CHECK(w.figures.of(kFirst).evicting == 3s);
}

TEST_CASE("Work that the GPU finishes within a yielded turn is not overuse") {
  const std::unique_ptr<Policy> elastic = make_policy("elastic");
  Watched w;
  w.handle(RulesSet{.node = {.policy = elastic.get()}});
  for (std::uint64_t id : {1u, 2u}) {
    w.come(id, id);
    w.attach(id);
    w.handle(CapSet{.tenant = TenantId{id}, .cap = {}, .claims = {.request = 0.5, .timed = true}});
  }
  w.want(1);
  w.want(2);
  const Nanoseconds ends = w.session(1).turn_ends;
  REQUIRE(ends > w.now + 2ms);
  w.look();
  w.after(1ms, [&] { w.say(1, GiveBack{.epoch = w.epoch(1)}); });
  REQUIRE_FALSE(w.open(1));
  const Nanoseconds left = ends - w.now;
  CHECK(w.figures.of(kFirst, {}, w.now + left).overuse == 0s);
  CHECK(w.figures.of(kFirst, {}, w.now + left + 5ms).overuse == 5ms);
  w.after(1ms, [] {});
  w.after(left + 6ms, [&] { w.release(1, 0, true); });
  CHECK(w.figures.of(kFirst).overuse == 7ms);  // the release comes 1 ms + `left` + 6 ms after the GiveBack;
                                               // `left` does not count as overuse
}

TEST_CASE("Waiting, handoffs and overuse of each tenant and step are recorded") {
  Watched w;
  w.after(0s, [&] { w.settle_in(1, 1, 80); });
  w.after(1s, [&] {
    w.come(2, 2);
    w.attach(2);
    w.grow(2, 80, 0);
    w.release(2, 0, true);  // the growing tenant leaves and begins to wait
  });
  CHECK(w.figures.of(kFirst) == Figures{.footprint = mebibytes(80), .resident = mebibytes(80)});
  CHECK(w.figures.take_news(w.now).empty());

  w.after(20s, [&] { w.pass(0s); });  // the turn ends, and the gate closes
  w.after(3s, [&] { w.release(1, 80, false); });
  CHECK(w.figures.of(kFirst).overuse == 3s);
  CHECK(w.figures.of(kFirst).handoffs == 1);
  w.after(1s, [&] { w.tell(1, 80, 20); });
  w.after(1s, [&] { w.ready(2, 80); });
  w.after(5s, [] {});
  CHECK(w.figures.of(kSecond).waited == 25s);
  CHECK(w.figures.of(kSecond, {.job = 2, .step = 0}).waited == 25s);
  CHECK(w.figures.of(kSecond).resident == mebibytes(80));
  CHECK(w.figures.of(kFirst).waited == 0s);
  // take_news() returns the figures of the first tenant and its step, because their lease has ended. It also
  // returns the figures of the second tenant and its step, because these figures have grown for at least 15
  // seconds.
  CHECK(w.figures.take_news(w.now).size() == 4);
  CHECK(w.figures.take_news(w.now).empty());

  w.after(1s, [&] { w.handle(SessionGone{.session = SessionId{2}}); });
  CHECK(w.figures.take_news(w.now).size() == 2);
  CHECK(w.figures.of(kSecond).waited == 25s);
}

TEST_CASE("A step waits while any of its processes does") {
  Watched w;
  w.after(0s, [&] { w.settle_in(1, 1, 80); });
  w.after(1s, [&] {
    w.queue_up(2, 2, 80);
    w.come(3, 2);
    w.attach(3);
  });
  REQUIRE(w.session(2).wants);
  REQUIRE_FALSE(w.session(3).wants);
  w.after(5s, [] {});
  CHECK(w.figures.of(kSecond).waited == 5s);
  CHECK(w.figures.of(kSecond, {.job = 2, .step = 0}).waited == 5s);
}

TEST_CASE("Moved bytes count for the step and for its tenant, and outside of Slurm only once") {
  FigureBook figures;
  const Traffic some{.evicted = mebibytes(3), .restored = mebibytes(1)};
  figures.add(kFirst, {.job = 1, .step = 0}, some);
  figures.add(kFirst, {.job = 1, .step = 1}, some);
  figures.add(kSecond, {}, some);
  figures.add(kSecond, {}, {});
  CHECK(figures.of(kFirst, {.job = 1, .step = 0}).moved == some);
  CHECK(figures.of(kFirst).moved == some + some);
  CHECK(figures.of(kSecond).moved == some);
  CHECK(figures.take_news(10s).size() == 4);
  figures.add(kFirst, {.job = 1, .step = 0}, some);
  CHECK(figures.take_news(10s + 900ms).empty());
  CHECK(figures.take_news(11s).size() == 2);
  CHECK(figures.take_news(20s).empty());
  figures.forget(kFirst);
  CHECK(figures.of(kFirst) == Figures{});
  CHECK(figures.of(kSecond).moved == some);
}

TEST_CASE("What exchanges have cost counts for the step and for its tenant, with the highest speed") {
  FigureBook figures;
  const StepName first{.job = 1, .step = 0};
  const StepName second{.job = 1, .step = 1};
  const Exchanges some{.moved = {.evicted = mebibytes(3), .restored = mebibytes(1)},
                       .moving = 1s,
                       .waited = 2s,
                       .copied = mebibytes(3),
                       .fastest = mebibytes(5),
                       .slowed = 3s};
  const Exchanges slower{.moving = 1s, .copied = mebibytes(3), .fastest = mebibytes(4)};
  figures.add_exchanges(kFirst, first, some);
  figures.add_exchanges(kFirst, second, slower);
  CHECK(figures.of(kFirst, first).exchanges == some);
  CHECK(figures.of(kFirst, second).exchanges == slower);
  CHECK(figures.of(kFirst).exchanges == some + slower);
  CHECK(figures.of(kFirst).exchanges.fastest == mebibytes(5));
  CHECK(figures.take_news(10s).size() == 3);
  figures.add_exchanges(kFirst, first, Exchanges{.fastest = mebibytes(5)});
  CHECK(figures.take_news(20s).empty());
}

// The first tenant has the turn, and the second waits for its turn.
struct Queue : Watched {
  static constexpr StepName kFirstStep{.job = 1, .step = 0};
  static constexpr StepName kSecondStep{.job = 2, .step = 0};
  static constexpr Traffic kSome{.evicted = mebibytes(3), .restored = mebibytes(1)};

  Queue() {
    after(0s, [&] { settle_in(1, 1, 80); });
    after(1s, [&] { queue_up(2, 2, 80); });
  }
  std::vector<FigureBook::Key> news(Nanoseconds later = {}) {
    std::vector<FigureBook::Key> keys;
    for (const auto& entry : figures.take_news(now + later)) keys.push_back(entry.first);
    return keys;
  }
};

const std::vector<FigureBook::Key> kBoth = {
    {kFirst, {}}, {kFirst, Queue::kFirstStep}, {kSecond, {}}, {kSecond, Queue::kSecondStep}};
const std::vector<FigureBook::Key> kOfFirst(kBoth.begin(), kBoth.begin() + 2);

TEST_CASE("The figures are news as soon as a lease ends, while bytes that move right after it are not") {
  Queue q;
  q.after(20s, [&] { q.pass(0s); });  // the turn ends, and the gate closes
  q.news();
  q.figures.add(kFirst, Queue::kFirstStep, Queue::kSome);
  REQUIRE(q.news(1s) == kOfFirst);
  q.after(1100ms, [&] { q.release(1, 80, false); });
  CHECK(q.news() == kOfFirst);
  q.figures.add(kFirst, Queue::kFirstStep, Queue::kSome);
  CHECK(q.news(900ms).empty());
  CHECK(q.news(1s) == kOfFirst);
}

TEST_CASE("The end of the last session is news at once") {
  Queue q;
  q.news();
  q.figures.add(kFirst, Queue::kFirstStep, Queue::kSome);
  REQUIRE(q.news(10s) == kOfFirst);
  q.after(10s + 1ms, [&] { q.handle(SessionGone{.session = SessionId{1}}); });
  CHECK(q.news() == kOfFirst);
}

TEST_CASE("Figures that grow for long are news every 15 seconds, and those that stay the same are not") {
  Queue q;
  CHECK(q.news().empty());  // the 15 seconds begin
  q.after(15s - 1ns, [] {});
  CHECK(q.news().empty());
  q.after(1ns, [] {});
  CHECK(q.news() == kBoth);  // the memory of the first tenant, and the waiting time of the second tenant
  q.after(14s, [] {});
  CHECK(q.news().empty());
  q.after(1s, [] {});
  CHECK(q.news() == std::vector<FigureBook::Key>(kBoth.begin() + 2, kBoth.end()));
}

TEST_CASE("When the arbiter ends, all figures are news at once") {
  Queue q;
  q.figures.add(kFirst, Queue::kFirstStep, Queue::kSome);
  REQUIRE(q.news() == kOfFirst);
  CHECK(q.news().empty());
  q.figures.hasten();
  CHECK(q.news() == kBoth);
}

TEST_CASE("A wait counts up to the moment of the query, and no part of it counts twice") {
  Queue q;
  CHECK(q.figures.of(kSecond).waited == 0s);
  CHECK(q.figures.of(kSecond, {}, q.now + 3s).waited == 3s);
  CHECK(q.figures.of(kSecond, Queue::kSecondStep, q.now + 3s).waited == 3s);
  CHECK(q.figures.of(kFirst, {}, q.now + 3s).waited == 0s);
  CHECK(q.figures.of(kSecond, {}, q.now - 1s).waited == 0s);
  q.after(3s, [] {});
  CHECK(q.figures.of(kSecond, {}, q.now).waited == 3s);
}

TEST_CASE("Forgotten figures begin at zero, and are no news") {
  Queue q;
  q.news();
  q.after(15s, [] {});
  REQUIRE(q.news() == kBoth);
  q.figures.add(kFirst, Queue::kFirstStep, Queue::kSome);
  q.figures.add(kSecond, Queue::kSecondStep, Queue::kSome);
  q.figures.forget(kSecond);
  q.figures.came(kSecond, Queue::kSecondStep, Backend::native);
  CHECK(q.figures.of(kSecond, Queue::kSecondStep) == Figures{.backends = 4});
  CHECK(q.news(1s) == kOfFirst);
  q.figures.forget(kFirst);
  q.after(5s, [] {});  // the earlier time belongs to the forgotten tenant
  CHECK(q.figures.of(kSecond).waited == 0s);
  CHECK(q.figures.of(kFirst) == Figures{.footprint = mebibytes(80), .resident = mebibytes(80)});
  q.after(10s, [] {});
  CHECK(q.news() == kBoth);
}

TEST_CASE("Figures of a new run are news even if they equal those of the last run") {
  Queue q;
  q.news();
  q.after(15s, [] {});
  REQUIRE(q.news() == kBoth);
  q.figures.forget(kFirst);
  q.after(15s, [] {});
  CHECK(q.news() == kBoth);
}

TEST_CASE("Figures from the ledger are no news, and new figures are added to them") {
  FigureBook figures;
  const FigureBook::Key key{kFirst, {.job = 1, .step = 0}};
  figures.carry(key, {.moved = {.evicted = mebibytes(1), .restored = mebibytes(2)}, .handoffs = 3});
  CHECK(figures.take_news(100s).empty());
  figures.add(kFirst, key.second, {.evicted = mebibytes(4), .restored = mebibytes(5)});
  CHECK(figures.of(kFirst, key.second).moved == Traffic{.evicted = mebibytes(5), .restored = mebibytes(7)});
  CHECK(figures.of(kFirst, key.second).handoffs == 3);
}

}  // namespace
}  // namespace sharedgpu
