// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/figure_book.h"

#include <catch2/catch.hpp>

#include "tests/unit/arbiter/bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

constexpr TenantId kFirst{1};
constexpr TenantId kSecond{2};

// Two tenants of 80 MiB on a GPU of 100, watched.
struct Watched : Bench {
  FigureBook figures;

  void look() { figures.observe(core->snapshot(), core->leases(), now); }
  template <class Do>
  void after(Nanoseconds time, Do something) {
    now += time;
    something();
    look();
  }
};

TEST_CASE("Backends are told of each tenant and step") {
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

TEST_CASE("What the GPU finishes within a turn that was given back is not overuse") {
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
  CHECK(w.figures.of(kFirst).overuse == 7ms);  // 1 + left + 6 after it was given back
}

TEST_CASE("Waiting, handoffs and overuse are told of each tenant and step") {
  Watched w;
  w.after(0s, [&] { w.settle_in(1, 1, 80); });
  w.after(1s, [&] {
    w.come(2, 2);
    w.attach(2);
    w.grow(2, 80, 0);
    w.release(2, 0, true);  // who grows leaves; it waits from here on
  });
  CHECK(w.figures.of(kFirst) == Figures{.footprint = mebibytes(80), .resident = mebibytes(80)});
  CHECK(w.figures.take_news(w.now).empty());

  w.after(20s, [&] { w.pass(0s); });  // the turn is over: the gate is closed
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
  // The first one's and its step's, who gave up a lease, and what has grown of the second's for a while.
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

TEST_CASE("What was moved counts for the step and for its tenant, once outside of Slurm") {
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

}  // namespace
}  // namespace sharedgpu
