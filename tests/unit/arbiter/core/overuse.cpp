// SPDX-License-Identifier: Apache-2.0
// Tenants that do not leave the GPU after their lease was revoked: how long other tenants wait, and how the
// arbiter responds. Time advances from one timer of the core to the next.
#include <algorithm>
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;
using Response = Overstay::Response;

std::vector<Response> responses(const Bench& b) {
  std::vector<Response> all;
  for (const Overstay& overstay : b.overstays) all.push_back(overstay.response);
  return all;
}

std::vector<Response> responses_to(const Bench& b, std::uint64_t tenant) {
  std::vector<Response> all;
  for (const Overstay& overstay : b.overstays)
    if (overstay.tenant == TenantId{tenant}) all.push_back(overstay.response);
  return all;
}

unsigned cancels_of(const Bench& b, std::uint64_t tenant) {
  const std::vector<Response> all = responses_to(b, tenant);
  return static_cast<unsigned>(std::count(all.begin(), all.end(), Response::cancel));
}

Bench bench(const OveruseRules& rules = {}) { return Bench({}, {.fixed = 10s}, {}, rules); }

// The sizes of a data-centre GPU: at the lowest speed that the core assumes, copying 60 GiB takes 16 minutes.
const GpuUuid kBig{{3}};
constexpr unsigned kGiB = 1024;
constexpr unsigned kMuch = 60 * kGiB;

// Like revoked(), but on a GPU with a capacity of 100 GiB: tenant 1 has 60 GiB, and tenant 2 needs 60 GiB. A
// tenant that exceeds MaxOveruse is ended.
Bench revoked_with_much() {
  Bench b = bench({.cancel = true});
  b.handle(GpuFound{
      .gpu = kBig, .total = mebibytes(120 * kGiB), .capacity = mebibytes(100 * kGiB), .learned = false});
  b.come(1, 1);
  b.attach(1, kBig);
  b.grow(1, kMuch, 0);
  b.tell(1, kMuch, kMuch);
  b.come(2, 2);
  b.attach(2, kBig);
  b.grow(2, kMuch, 0);
  b.release(2, 0, true);
  b.pass_by_timers(10s);
  REQUIRE_FALSE(b.open(1));
  REQUIRE(b.holds(1));
  return b;
}

// If tenant 2 has to leave because memory is short, lets it leave and wait for the GPU again.
void let_go_first(Bench& b) {
  if (b.tenant(2).phase == Phase::leaving) b.release(2, true, Bench::use(kMuch, 0));
}

// Tenant 1 has 60 MiB, and its turn has ended when this function returns. Tenant 2 waits and needs 60 MiB.
Bench revoked(const OveruseRules& rules = {}) {
  Bench b = bench(rules);
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  REQUIRE_FALSE(b.open(1));
  REQUIRE(b.holds(1));
  return b;
}

// Like revoked(), but tenant 1 was granted 60 MiB and never reported memory.
Bench revoked_and_empty() {
  Bench b = bench();
  b.come(1, 1);
  b.attach(1);
  b.grow(1, 60, 0);
  REQUIRE(b.granted(1));
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  REQUIRE_FALSE(b.open(1));
  REQUIRE(b.holds(1));
  return b;
}

// ---- tenants without memory on the GPU ----

TEST_CASE("A tenant that has nothing on the GPU and does not answer loses its lease after 2 s") {
  Bench b = revoked_and_empty();
  b.pass_by_timers(2s - 1ns);
  CHECK(b.holds(1));
  CHECK_FALSE(b.sent<Restore>(2));
  b.pass_by_timers(1ns);
  CHECK_FALSE(b.holds(1));
  CHECK(b.notes ==
        std::vector<std::string>{"does not answer, and has nothing on the GPU; its lease goes to others"});
  // The core does not count the memory that was granted to tenant 1, and gives this memory to tenant 2.
  CHECK(b.gpu().promised == mebibytes(60));
  REQUIRE(b.session(2).resident_limit == mebibytes(60));
  b.ready(2, 60);
  CHECK(b.open(2));
  SECTION("and is not served before it answers") {
    b.want(1);
    b.pass_by_timers(1h);
    CHECK(b.open(2));
    CHECK(responses(b).empty());
    b.release(1, true, Bench::use(60, 0));
    CHECK(b.sent<Revoke>(2));
  }
  SECTION("and takes no room by words") {
    b.tell(1, 60, 60);
    CHECK(b.session(1).use.resident == Bytes{});
    CHECK(b.open(2));
  }
}

TEST_CASE("Others wait for a tenant that has a context, pinned memory or any memory on the GPU") {
  MemoryUse use = Bench::use(60, 0);
  SECTION("a context") { use.context = mebibytes(1); }
  SECTION("pinned memory") { use.pinned = mebibytes(1); }
  SECTION("memory") { use.resident = mebibytes(1); }
  Bench b = bench();
  b.come(1, 1);
  b.attach(1);
  b.say(1, Usage{.request = 1, .use = use, .stuck = 0});
  b.say(1, Usage{.request = 0, .use = use, .stuck = 0});
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  REQUIRE(b.holds(1));
  REQUIRE_FALSE(b.open(1));
  b.pass_by_timers(1min);
  CHECK(b.holds(1));
}

TEST_CASE("Time in which the arbiter itself hangs is no overuse") {
  Bench b = revoked({.most = 10s, .cancel = true});
  b.pass_by_timers(4s);
  b.pass(1h);
  CHECK(responses(b).empty());
  CHECK(b.tenant(1).overdue);
  b.pass_by_timers(4s);
  CHECK(cancels_of(b, 1) == 0);
  b.pass_by_timers(10s);
  CHECK(cancels_of(b, 1) == 1);
}

TEST_CASE(
    "A session without memory that does not answer does not end the turn of its tenant's other sessions") {
  Bench b = bench();
  b.settle_in(1, 1, 60);
  b.come(3, 1);
  b.attach(3);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.pass_by_timers(5s);
  CHECK(b.holds(1));
  SECTION("which has ended when the others have drained") {
    b.release(1, 60, true);
    CHECK_FALSE(b.holds(1));
    CHECK(b.sent<Evict>(1));
    b.release(3, false, Bench::use(0, 0));
    CHECK(b.tenant(1).phase == Phase::out);
  }
  SECTION("and it is not let submit for them") {
    b.want(3);
    CHECK_FALSE(b.until_sent<Step>(3));
  }
}

TEST_CASE("A reconnected session that has nothing and does not answer holds a lease for 2 s at most") {
  Bench b = bench();
  b.settle_in(2, 2, 60);
  Hello back;
  back.resuming = 1;
  b.come(1, 1, back);
  b.attach(1);
  REQUIRE(b.sent<Revoke>(1));
  b.tell(1, 0, 0);
  b.pass_by_timers(1s);
  REQUIRE(b.holds(1));
  b.pass_by_timers(1s);
  CHECK_FALSE(b.holds(1));
  b.pass_by_timers(1min);
  CHECK_FALSE(b.holds(1));
}

TEST_CASE("Others wait for a session whose memory is unknown") {
  Bench b = bench();
  b.settle_in(2, 2, 60);
  Hello back;
  back.resuming = 1;
  b.come(1, 1, back);
  b.attach(1);
  b.pass_by_timers(1min);
  CHECK(b.holds(1));
}

// ---- the longest overuse ----

TEST_CASE("In each turn, overuse is noted once after 10 s, and once after MaxOveruse") {
  Bench b = revoked();
  b.pass_by_timers(10s - 1ns);
  CHECK(b.overstays.empty());
  b.pass_by_timers(1ns);
  REQUIRE(b.overstays.size() == 1);
  CHECK(b.overstays[0].tenant == TenantId{1});
  CHECK(b.overstays[0].gpu == kGpu);
  CHECK(b.overstays[0].lasted == 10s);
  b.pass_by_timers(290s - 1ns);
  CHECK(responses(b) == std::vector{Response::note});
  b.pass_by_timers(1ns);
  CHECK(responses(b) == std::vector{Response::note, Response::warn});
  CHECK(b.overstays[1].lasted == 5min);
  b.pass_by_timers(1h);
  CHECK(b.overstays.size() == 2);
  SECTION("and in the next one anew") {
    b.release(2, true, Bench::use(60, 0));  // tenant 2 has to leave because memory is short
    b.release(1, 60, true);
    b.tell(1, 60, 40);
    b.ready(2, 60);
    REQUIRE(b.open(2));
    b.pass_by_timers(10s);
    b.release(2, 60, true);
    b.tell(2, 60, 40);
    b.ready(1, 60);
    REQUIRE(b.open(1));
    b.pass_by_timers(10s);
    REQUIRE_FALSE(b.open(1));
    b.pass_by_timers(5min);
    CHECK(responses(b) == std::vector{Response::note, Response::warn, Response::note, Response::warn});
  }
}

TEST_CASE("Overuse that exceeds a MaxOveruse below 10 s is noted once only") {
  Bench b = revoked({.most = 3s, .cancel = true});
  b.pass_by_timers(30s);
  CHECK(responses(b) == std::vector{Response::cancel});
  CHECK(b.overstays[0].lasted == 3s);
}

TEST_CASE("A tenant that releases just before MaxOveruse is left alone") {
  Bench b = revoked({.cancel = true});
  b.pass_by_timers(5min - 1ns);
  b.release(1, 60, true);
  b.pass_by_timers(1ns);
  b.pass_by_timers(1s);
  CHECK(responses(b) == std::vector{Response::note});
  CHECK_FALSE(b.tenant(1).overdue);
}

TEST_CASE("Overuse lasts only while others wait") {
  Bench b = revoked();
  const Nanoseconds since = b.now;
  b.pass_by_timers(4min);
  b.handle(SessionGone{.session = SessionId{2}});
  CHECK_FALSE(b.tenant(1).overdue);
  Nanoseconds left = 5min;
  SECTION("and begins anew after a while in which nobody did") {
    b.pass_by_timers(1min);
    b.queue_up(3, 3, 60);
    REQUIRE(b.tenant(1).overdue);
    CHECK(b.tenant(1).overdue->since == b.now);
  }
  SECTION("and goes on after a moment in which nobody did, which does not count") {
    b.pass_by_timers(1min - 1ns);
    b.queue_up(3, 3, 60);
    REQUIRE(b.tenant(1).overdue);
    CHECK(b.tenant(1).overdue->since == since);
    left = 1min;
  }
  SECTION("and goes on after many such moments") {
    for (unsigned i = 0; i < 10; ++i) {
      b.pass_by_timers(50s);
      b.queue_up(3, 3, 60);
      REQUIRE(b.tenant(1).overdue);
      b.pass_by_timers(3s);
      b.handle(SessionGone{.session = SessionId{3}});
    }
    b.queue_up(3, 3, 60);
    left = 30s;
  }
  CHECK(responses(b) == std::vector{Response::note});
  b.pass_by_timers(left - 1ns);
  CHECK(b.overstays.size() == 1);
  b.pass_by_timers(1ns);
  CHECK(responses(b) == std::vector{Response::note, Response::warn});
}

TEST_CASE("Overuse shows from the first moment, with the GPU that others wait for") {
  Bench b = revoked();
  const auto overdue = b.tenant(1).overdue;
  REQUIRE(overdue);
  CHECK(overdue->gpu == kGpu);
  CHECK(overdue->since == b.now);
  CHECK_FALSE(overdue->stopped);
  CHECK_FALSE(b.tenant(2).overdue);
}

// ---- several GPUs ----

TEST_CASE("Overuse is on the GPU where the tenant has not drained, and others wait") {
  Bench b = bench();
  b.settle_in(1, 1, 60);
  b.come(4, 1);
  b.attach(4, kOther);
  b.grow(4, 60, 0);
  b.tell(4, 60, 60);
  b.queue_up(2, 2, 60);
  b.come(3, 3);
  b.attach(3, kOther);
  b.grow(3, 30, 0);
  b.tell(3, 30, 30);
  b.pass_by_timers(10s);
  REQUIRE_FALSE(b.open(1));
  REQUIRE_FALSE(b.open(4));
  REQUIRE(b.tenant(1).overdue);
  SECTION("the one that 2 waits for") {
    b.release(4, 60, false);
    b.pass_by_timers(5min);
    REQUIRE(b.overstays.size() == 2);
    CHECK(b.overstays[1].gpu == kGpu);
  }
  SECTION("and not where nobody waits") {
    b.release(1, 60, false);
    CHECK_FALSE(b.tenant(1).overdue);
    b.pass_by_timers(1h);
    CHECK(b.overstays.empty());
  }
}

// Tenant 1 has 60 MiB on each of two GPUs and leaves neither GPU. Tenant 2 waits for the first GPU, and
// tenant 3 waits for the second GPU.
Bench revoked_on_both(bool cancel) {
  Bench b = bench({.cancel = cancel});
  b.settle_in(1, 1, 60);
  b.come(4, 1);
  b.attach(4, kOther);
  b.grow(4, 60, 0);
  b.tell(4, 60, 60);
  b.queue_up(2, 2, 60);
  b.come(3, 3);
  b.attach(3, kOther);
  b.grow(3, 60, 0);
  b.release(3, 0, true);
  b.pass_by_timers(10s);
  REQUIRE_FALSE(b.open(4));
  return b;
}

std::vector<GpuUuid> exceeded_on(const Bench& b) {
  std::vector<GpuUuid> all;
  for (const Overstay& overstay : b.overstays)
    if (overstay.response != Response::note) all.push_back(overstay.gpu);
  return all;
}

TEST_CASE("A tenant that exceeds MaxOveruse is warned about once for each GPU that others wait for") {
  Bench b = revoked_on_both(false);
  b.pass_by_timers(5min - 1ns);
  CHECK(exceeded_on(b).empty());
  b.pass_by_timers(1h);
  CHECK(exceeded_on(b) == std::vector{kGpu, kOther});
}

TEST_CASE("A tenant that exceeds MaxOveruse is ended on each GPU that others wait for, until it has left") {
  Bench b = revoked_on_both(true);
  b.pass_by_timers(5min);
  CHECK(exceeded_on(b) == std::vector{kGpu, kOther});
  b.handle(SessionGone{.session = SessionId{1}});
  b.pass_by_timers(30s);
  CHECK(exceeded_on(b).size() == 2);
  b.pass_by_timers(1s);
  CHECK(exceeded_on(b) == std::vector{kGpu, kOther, kOther});
  b.handle(SessionGone{.session = SessionId{4}});
  b.pass_by_timers(1h);
  CHECK(exceeded_on(b).size() == 3);
}

TEST_CASE("A process that Slurm has stopped is not ended with the other processes of its tenant") {
  Bench b = revoked_on_both(true);
  b.handle(Suspend{.tenant = TenantId{1}, .suspended = true});
  b.stop(4);
  b.pass_by_timers(5min);
  CHECK(exceeded_on(b) == std::vector{kGpu});
  b.handle(SessionGone{.session = SessionId{1}});
  b.pass_by_timers(1h);
  CHECK(exceeded_on(b).size() == 1);
}

// ---- sessions that replace earlier sessions ----

TEST_CASE("The time of a process that reconnects before MaxOveruse continues to count") {
  Bench b = revoked({.cancel = true});
  b.pass_by_timers(5min - 1s);
  REQUIRE(responses(b) == std::vector{Response::note});
  const Nanoseconds since = b.tenant(1).overdue->since;
  b.succeed(1, 3);
  b.tell(3, 60, 60);
  REQUIRE(b.tenant(1).overdue);
  CHECK(b.tenant(1).overdue->since == since);
  b.pass_by_timers(1s - 1ns);
  CHECK(responses(b) == std::vector{Response::note});
  SECTION("and is to be ended") {
    b.pass_by_timers(1ns);
    CHECK(responses(b) == std::vector{Response::note, Response::cancel});
  }
  SECTION("also where it comes back again") {
    b.succeed(3, 4);
    b.pass_by_timers(1ns);
    CHECK(responses(b) == std::vector{Response::note, Response::cancel});
  }
  SECTION("and is let be once it has drained") {
    b.release(3, 60, true);
    b.pass_by_timers(1s);
    CHECK(responses(b) == std::vector{Response::note});
  }
}

TEST_CASE("The time of a process that reconnects beside others of its tenant continues to count") {
  Bench b = bench({.cancel = true});
  b.settle_in(1, 1, 30);
  b.settle_in(3, 1, 30);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.release(3, 30, false);
  b.pass_by_timers(5min - 1s);
  b.succeed(1, 4);
  b.tell(4, 30, 30);
  b.pass_by_timers(1s);
  CHECK(responses(b) == std::vector{Response::note, Response::cancel});
}

TEST_CASE("A process that reconnects after others of its tenant were ended is ended, too") {
  Bench b = bench({.cancel = true});
  b.settle_in(1, 1, 30);
  b.settle_in(3, 1, 30);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.pass_by_timers(4min + 50s);
  b.come(4, 1);
  b.pass_by_timers(10s);
  REQUIRE(cancels_of(b, 1) == 1);
  b.handle(SessionGone{.session = SessionId{3}, .heir = SessionId{4}});
  b.tell(4, 30, 30);
  b.handle(SessionGone{.session = SessionId{1}});
  b.pass_by_timers(31s);
  CHECK(cancels_of(b, 1) == 2);
}

TEST_CASE("A reconnected process that uses no GPU does not protect its tenant in later turns") {
  Bench b = bench({.cancel = true});
  b.settle_in(1, 1, 60);
  b.come(7, 1);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.come(8, 1);
  b.handle(SessionGone{.session = SessionId{7}});
  b.pass_by_timers(5min);
  REQUIRE(cancels_of(b, 1) == 1);
  b.release(2, true, Bench::use(60, 0));
  b.handle(SessionGone{.session = SessionId{1}});
  b.pass_by_timers(1s);
  b.ready(2, 60);
  REQUIRE(b.open(2));
  b.queue_up(9, 1, 60);
  b.pass_by_timers(10s);
  b.release(2, 60, true);
  b.tell(2, 60, 40);
  b.ready(9, 60);
  REQUIRE(b.open(9));
  b.pass_by_timers(10s);
  REQUIRE_FALSE(b.open(9));
  b.pass_by_timers(5min + 31s);
  CHECK(cancels_of(b, 1) > 1);
}

TEST_CASE("A reconnected process that never has a GPU adds nothing to the time of its tenant") {
  Bench b = bench({.cancel = true});
  b.settle_in(1, 1, 60);
  Hello back;
  back.resuming = 1;
  b.come(3, 1, back);
  b.queue_up(2, 2, 60);
  const auto hand_over = [&b](std::uint64_t from, std::uint64_t to) {
    b.pass_by_timers(10s);
    b.pass_by_timers(8s);  // the kernels that the tenant submitted before the end of its turn still run
    b.release(from, 60, true);
    b.tell(from, 60, 40);
    b.ready(to, 60);
    REQUIRE(b.open(to));
  };
  for (int turn = 0; turn < 50; ++turn) {
    hand_over(1, 2);
    hand_over(2, 1);
  }
  CHECK(b.overstays.empty());
}

TEST_CASE("The time of a tenant begins anew after the death of its process") {
  Bench b = revoked({.cancel = true});
  b.pass_by_timers(5min - 1s);
  b.release(2, true, Bench::use(60, 0));  // tenant 2 has to leave because memory is short
  b.handle(SessionGone{.session = SessionId{1}});
  b.ready(2, 60);
  REQUIRE(b.open(2));
  b.queue_up(3, 1, 60);
  b.pass_by_timers(10s);
  b.release(2, 60, true);
  b.tell(2, 60, 40);
  b.ready(3, 60);
  REQUIRE(b.open(3));
  b.pass_by_timers(10s);
  b.pass_by_timers(5min - 1ns);
  CHECK(responses(b) == std::vector{Response::note, Response::note});
  b.pass_by_timers(1ns);
  CHECK(responses(b) == std::vector{Response::note, Response::note, Response::cancel});
}

// ---- evictions ----

// Tenant 1 has 60 MiB on the GPU and has drained. Tenant 2 needs 60 MiB, so tenant 1 was ordered to evict 20
// MiB.
Bench told_to_evict(bool wants = false) {
  Bench b = revoked({.cancel = true});
  b.release(1, 60, wants);
  REQUIRE(b.sent<Evict>(1)->allowed == mebibytes(40));
  return b;
}

TEST_CASE("A tenant that releases the GPU and does not evict is overdue from the first moment") {
  Bench b = told_to_evict();
  REQUIRE(b.tenant(1).overdue);
  CHECK(b.tenant(1).overdue->evicts);
  CHECK(b.tenant(1).overdue->gpu == kGpu);
  SECTION("and is ended after MaxOveruse and what a silent eviction may take") {
    b.pass_by_timers(20s - 1ns);
    CHECK(responses(b).empty());
    b.pass_by_timers(1ns);
    CHECK(responses(b) == std::vector{Response::note});
    CHECK(b.overstays[0].evicts);
    b.pass_by_timers(290s - 1ns);
    CHECK(b.overstays.size() == 1);
    b.pass_by_timers(1ns);
    CHECK(responses(b) == std::vector{Response::note, Response::cancel});
    b.pass_by_timers(31s);
    CHECK(responses(b) == std::vector{Response::note, Response::cancel, Response::cancel});
  }
  SECTION("also where it says something all the time") {
    for (unsigned i = 0; i < 310; ++i) {
      b.pass_by_timers(1s);
      b.tell(1, 60, 60);
    }
    CHECK(responses(b) == std::vector{Response::note, Response::cancel});
  }
  SECTION("and is let be once it has evicted") {
    b.pass_by_timers(5min);
    b.tell(1, 60, 40);
    CHECK_FALSE(b.tenant(1).overdue);
    b.pass_by_timers(1h);
    CHECK(responses(b) == std::vector{Response::note});
  }
  SECTION("and is let be where it has no host memory") {
    b.tell(1, 60, 60, true);
    CHECK_FALSE(b.tenant(1).overdue);
    for (unsigned i = 0; i < 1000; ++i) {
      b.pass_by_timers(1s);
      b.tell(1, 60, 60, true);
    }
    CHECK(responses(b).empty());
  }
  SECTION("and is let be when nobody waits") {
    b.handle(SessionGone{.session = SessionId{2}});
    CHECK_FALSE(b.tenant(1).overdue);
    b.pass_by_timers(1h);
    CHECK(responses(b).empty());
  }
  SECTION("and is shown as stopped where Slurm has stopped it") {
    b.handle(Suspend{.tenant = TenantId{1}, .suspended = true});
    b.stop(1);
    b.pass_by_timers(1h);
    CHECK(b.tenant(1).overdue->stopped);
    CHECK(responses(b).empty());
  }
}

TEST_CASE("Each evicted byte extends the time limit") {
  Bench b = told_to_evict();
  b.pass_by_timers(9s);
  SECTION("as a slow copy takes") {
    b.tell(1, 60, 56);  // copying 4 MiB may take 62 ms, which do not count
    b.pass_by_timers(11s + 61ms);
    CHECK(responses(b).empty());
    b.pass_by_timers(1ms);
    CHECK(responses(b) == std::vector{Response::note});
  }
  SECTION("and no more than that") {
    for (unsigned left = 59; left > 40; --left) {
      b.pass_by_timers(17s);
      b.tell(1, 60, left);
    }
    CHECK(responses(b) == std::vector{Response::note, Response::cancel});
  }
}

TEST_CASE("A tenant that takes turns and never evicts does not begin anew") {
  Bench b = told_to_evict(true);
  unsigned turns = 0;
  for (unsigned i = 0; i < 1200 && b.overstays.size() < 2; ++i) {
    b.pass_by_timers(1s);
    if (b.tenant(1).phase == Phase::entering) b.ready(1, 60);
    if (b.tenant(1).phase == Phase::leaving) {
      b.release(1, 60, true);
      ++turns;
    }
    if (b.tenant(2).phase == Phase::leaving) b.release(2, true, Bench::use(60, 0));
    REQUIRE_FALSE(b.open(2));
  }
  CHECK(turns > 10);
  CHECK(responses(b) == std::vector{Response::note, Response::cancel});
}

TEST_CASE("The restore of much memory does not count as eviction") {
  Bench b = revoked_with_much();
  b.release(1, kMuch, true);
  REQUIRE(b.sent<Evict>(1));
  unsigned turns = 0;
  for (unsigned i = 0; i < 3600 && cancels_of(b, 1) == 0; ++i) {
    b.pass_by_timers(1s);
    if (b.tenant(1).phase == Phase::entering) b.ready(1, kMuch);
    if (b.tenant(1).phase == Phase::leaving) {
      b.release(1, kMuch, true);
      ++turns;
    }
    let_go_first(b);
    REQUIRE_FALSE(b.open(2));
  }
  CHECK(turns > 10);
  CHECK(cancels_of(b, 1) == 1);
}

TEST_CASE("A reconnection with much memory does not count as eviction") {
  Bench b = revoked_with_much();
  b.release(1, kMuch, false);
  REQUIRE(b.sent<Evict>(1));
  std::uint64_t id = 1;
  for (unsigned i = 1; i < 3600 && cancels_of(b, 1) == 0; ++i) {
    b.pass_by_timers(1s);
    let_go_first(b);
    REQUIRE_FALSE(b.open(2));
    if (i % 9 != 0) continue;
    b.succeed(id, id + 10);
    id += 10;
    b.tell(id, kMuch, kMuch);
    b.release(id, kMuch, false);
  }
  CHECK(id > 100);
  CHECK(cancels_of(b, 1) == 1);
}

TEST_CASE(
    "Memory that is freed by the end of a process was not evicted, and gives the tenant's other processes no "
    "time") {
  Bench b = bench({.cancel = true});
  b.settle_in(1, 1, 30);
  b.settle_in(3, 1, 30);
  b.queue_up(2, 2, 90);
  b.pass_by_timers(10s);
  b.release(3, 30, false);
  b.release(1, 30, false);
  REQUIRE(b.session(1).resident_limit < mebibytes(30));
  REQUIRE(b.session(3).resident_limit < mebibytes(30));
  b.pass_by_timers(9s);
  b.handle(SessionGone{.session = SessionId{3}});
  REQUIRE(b.tenant(1).overdue);
  b.pass_by_timers(11s - 1ns);
  CHECK(responses(b).empty());
  b.pass_by_timers(1ns);
  CHECK(responses(b) == std::vector{Response::note});
}

TEST_CASE("Others wait for a large eviction at the speed of a slow copy") {
  Bench b = revoked_with_much();
  b.release(1, kMuch, true);
  REQUIRE(b.sent<Evict>(1)->allowed == mebibytes(40 * kGiB));
  for (unsigned left = kMuch; left > 40 * kGiB; left -= 64) {
    REQUIRE(b.tenant(1).overdue);
    b.pass_by_timers(1s);
    b.tell(1, kMuch, left - 64);
    let_go_first(b);
  }
  CHECK(responses(b).empty());
  CHECK_FALSE(b.tenant(1).overdue);
}

TEST_CASE("The drains of well-behaved tenants never add up to MaxOveruse") {
  Bench b = revoked_with_much();
  const auto turn = [&b](std::uint64_t from, std::uint64_t to) {
    while (b.tenant(from).phase != Phase::leaving) b.pass_by_timers(100ms);
    b.pass_by_timers(500ms);  // the tenant's last kernels run
    b.release(from, kMuch, true);
    for (unsigned left : {50u, 40u}) {
      b.pass_by_timers(200ms);
      b.tell(from, kMuch, left * kGiB);
    }
    b.ready(to, kMuch);
    REQUIRE(b.open(to));
    b.pass_by_timers(10s);
  };
  for (unsigned i = 0; i < 1500; ++i) {
    turn(1, 2);
    turn(2, 1);
  }
  CHECK(responses(b).empty());
}

// ---- delays that a tenant does not cause ----

TEST_CASE("Time in which a tenant cannot drain for lack of memory that was taken from it is no overuse") {
  Bench b = bench({.cancel = true});
  b.settle_in(1, 1, 30);
  b.settle_in(3, 1, 30);
  b.settle_in(5, 5, 30);
  b.queue_up(2, 2, 75);
  b.grow(5, 60, 30);  // the growth does not fit: tenant 5 has to leave, and cannot drain without this memory
  REQUIRE(b.tenant(5).phase == Phase::leaving);
  b.pass_by_timers(10s);
  REQUIRE(b.tenant(1).phase == Phase::leaving);
  b.release(1, 30, true);  // the work of session 3 may wait for the next submission of session 1
  REQUIRE(b.sent<Evict>(1));
  b.tell(1, 30, 0);
  CHECK(b.tenant(1).overdue);
  b.pass_by_timers(10min);
  CHECK(responses_to(b, 1).empty());
  CHECK(cancels_of(b, 5) > 0);
  SECTION("and time after it has got that back is") {
    b.handle(SessionGone{.session = SessionId{5}});
    b.pass_by_timers(5min);
    CHECK(responses_to(b, 1) == std::vector{Response::note, Response::cancel});
  }
  SECTION("nor does it help to allocate more") {
    b.tell(1, 0, 0);
    b.grow(1, 30, 0);
    b.pass_by_timers(10min);
    CHECK(cancels_of(b, 1) > 0);
  }
  SECTION("for as long as the other may take, and then has to be ended") {
    b.pass_by_timers(31s - 1ns);
    CHECK(responses_to(b, 1).empty());
    b.pass_by_timers(5min + 1ns);
    CHECK(responses_to(b, 1) == std::vector{Response::note, Response::cancel});
  }
}

TEST_CASE("A tenant that asks for memory waits for one that does not leave, and is not ended before that") {
  Bench b = revoked({.cancel = true});
  MemoryUse use = Bench::use(60, 40);
  use.context = mebibytes(1);
  b.say(2, Usage{.request = 0, .use = use, .stuck = 0});
  b.grow(1, 80, 60);
  b.pass_by_timers(100ms);
  REQUIRE(b.tenant(2).phase == Phase::leaving);
  b.pass_by_timers(1ms);
  CHECK(b.tenant(2).overdue);
  b.pass_by_timers(5min);
  CHECK(responses_to(b, 1).empty());
  CHECK(responses_to(b, 2) == std::vector{Response::note, Response::cancel});
  b.pass_by_timers(5min);
  CHECK(responses_to(b, 1) == std::vector{Response::note, Response::cancel});
}

TEST_CASE("Two tenants of which each keeps the memory that the other one lacks are ended at last") {
  Bench b = bench({.cancel = true});
  // The first process of each tenant (sessions 1 and 5) hangs. Session 3 drains and evicts its memory, which
  // session 5 gets. Session 6 drains and evicts nothing.
  b.settle_in(1, 1, 20);
  b.settle_in(3, 1, 20);
  b.settle_in(5, 5, 20);
  b.settle_in(6, 5, 20);
  b.queue_up(2, 2, 90);
  b.pass_by_timers(10s);
  REQUIRE(b.tenant(1).phase == Phase::leaving);
  REQUIRE(b.tenant(5).phase == Phase::leaving);
  b.grow(5, 60, 20);
  b.pass_by_timers(300ms);
  if (b.tenant(2).phase == Phase::leaving) b.release(2, true, Bench::use(90, 0));
  b.release(3, 20, true);
  REQUIRE(b.sent<Evict>(3));
  b.tell(3, 20, 0);
  b.tell(5, 60, 60);
  b.release(6, 20, true);
  for (unsigned i = 0; i < 3600 && cancels_of(b, 1) + cancels_of(b, 5) == 0; ++i) {
    b.pass_by_timers(1s);
    b.tell(6, 20, 20);
    if (b.tenant(2).phase == Phase::leaving) b.release(2, true, Bench::use(90, 0));
  }
  CHECK(cancels_of(b, 1) + cancels_of(b, 5) > 0);
}

TEST_CASE("A running tenant that asks for memory waits for the tenant that holds the memory") {
  Bench b = bench({.cancel = true});
  b.settle_in(1, 1, 60);
  b.come(3, 3);
  b.attach(3);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.release(1, 60, false);
  b.handle(SessionGone{.session = SessionId{2}});
  REQUIRE_FALSE(b.tenant(1).overdue);
  if (!b.open(3)) b.release(3, false, Bench::use(0, 0));
  b.want(3);
  REQUIRE(b.open(3));
  b.grow(3, 60, 0);
  REQUIRE_FALSE(b.sent<Verdict>(3));
  REQUIRE(b.open(3));
  CHECK_FALSE(b.tenant(3).wants);
  CHECK(b.tenant(1).overdue);
}

// ---- new processes of a tenant that does not leave ----

// The turn of session 1 ended a minute ago, and the session has not sent Released. Session 3 of the same
// tenant has just connected, and waits at its gate.
Bench with_newcomer(bool cancel) {
  Bench b = revoked({.most = 10s, .cancel = cancel});
  b.pass_by_timers(1min);
  REQUIRE(responses_to(b, 1).back() == (cancel ? Response::cancel : Response::warn));
  b.release(2, true, Bench::use(60, 0));  // tenant 2 has to leave because memory is short
  b.come(3, 1);
  b.attach(3);
  b.want(3);
  return b;
}

bool is_let_forward(Bench& b, std::uint64_t id) { return b.sent<Step>(id) || b.until_sent<Step>(id); }

TEST_CASE(
    "A process that starts late may submit for others of its tenant, unless the others are being ended") {
  const bool cancel = GENERATE(false, true);
  Bench b = with_newcomer(cancel);
  CHECK(is_let_forward(b, 3) == !cancel);
  CHECK_FALSE(b.open(3));
}

TEST_CASE("Nobody waits for a process that joined a tenant that is being ended, after it has reconnected") {
  Bench b = with_newcomer(true);
  b.succeed(3, 4);
  CHECK(b.sent<Attached>(4));
  CHECK_FALSE(b.sent<Revoke>(4));
  CHECK(b.tenant(1).wants);
  CHECK_FALSE(is_let_forward(b, 4));
  b.handle(SessionGone{.session = SessionId{1}});
  CHECK_FALSE(b.holds(1));
  CHECK(b.tenant(2).in_set());
}

TEST_CASE("A tenant is not being ended if nobody waits for it any more when it reaches MaxOveruse") {
  Bench b = revoked({.most = 60s, .cancel = true});
  b.pass_by_timers(60s - 2ns);
  b.now += 2ns;
  b.handle(SessionGone{.session = SessionId{2}});
  b.come(3, 1);  // tenant 1 cannot drain without this session
  b.attach(3);
  b.want(3);
  CHECK((b.sent<Step>(3) || b.until_sent<Step>(3, 1h)));
}

// ---- processes that are stopped ----

TEST_CASE("A suspension that was announced before the tenant connected counts at its repetition") {
  Bench b = bench({.cancel = true});
  b.handle(Suspend{.tenant = TenantId{1}, .suspended = true});
  b.settle_in(1, 1, 60);
  b.stop(1);
  b.queue_up(2, 2, 60);
  b.handle(Suspend{.tenant = TenantId{1}, .suspended = true});
  b.pass_by_timers(1h);
  CHECK(b.overstays.empty());
}

TEST_CASE("If Slurm has stopped a process, others wait, the arbiter does nothing, and the status shows it") {
  Bench b = revoked({.cancel = true});
  b.handle(Suspend{.tenant = TenantId{1}, .suspended = true});
  b.stop(1);
  b.pass_by_timers(1h);
  CHECK(b.overstays.empty());
  REQUIRE(b.tenant(1).overdue);
  CHECK(b.tenant(1).overdue->stopped);
  CHECK(b.tenant(1).overdue->since == b.now - 1h);
}

TEST_CASE("The time in which Slurm had stopped a process is no overuse, and the time before it is") {
  Bench b = revoked({.cancel = true});
  b.pass_by_timers(4min);
  b.handle(Suspend{.tenant = TenantId{1}, .suspended = true});
  b.stop(1);
  b.pass_by_timers(1h);
  b.handle(Suspend{.tenant = TenantId{1}, .suspended = false});
  b.go_on(1);
  CHECK(responses(b) == std::vector{Response::note});
  CHECK_FALSE(b.tenant(1).overdue->stopped);
  b.pass_by_timers(1min - 1ns);
  CHECK(responses(b) == std::vector{Response::note});
  b.pass_by_timers(1ns);
  CHECK(responses(b) == std::vector{Response::note, Response::cancel});
}

TEST_CASE("A process that stops itself and leaves others no room is overdue, and ended in the end") {
  Bench b = bench({.cancel = true});
  const bool others_wait_already = GENERATE(true, false);
  b.settle_in(1, 1, 60);
  if (others_wait_already) b.queue_up(2, 2, 60);
  b.stop(1);
  if (!others_wait_already) b.queue_up(2, 2, 60);
  b.pass_by_timers(1min);
  REQUIRE(b.tenant(1).overdue);
  CHECK(b.tenant(1).overdue->stopped);
  REQUIRE(responses(b) == std::vector{Response::note});
  CHECK(b.overstays.front().stopped);
  b.pass_by_timers(4min + 10s);
  CHECK(responses(b) == std::vector{Response::note, Response::cancel});
}

TEST_CASE("A process that stops and goes on again and again is no less overdue") {
  Bench b = revoked({.cancel = true});
  for (int i = 0; i < 40 && cancels_of(b, 1) == 0; ++i) {
    b.stop(1);
    b.pass_by_timers(5s);
    b.go_on(1);
    b.pass_by_timers(5s);
  }
  CHECK(cancels_of(b, 1) == 1);
}

TEST_CASE("A process that stops itself when it has released the GPU is overdue, too") {
  Bench b = revoked({.cancel = true});
  b.release(1, true, Bench::use(60, 60));
  const bool stops_at_once = GENERATE(true, false);
  if (!stops_at_once) b.tell(1, 60, 40);  // session 1 has evicted as ordered
  b.stop(1);
  b.ready(2, 60);
  b.pass_by_timers(6min);
  CHECK(cancels_of(b, 1) == (stops_at_once ? 2 : 0));
}

TEST_CASE("A stopped process that has nothing does not protect another that keeps others out") {
  Bench b = bench({.cancel = true});
  const bool is_first = GENERATE(true, false);
  if (!is_first) b.settle_in(3, 1, 60);
  b.come(1, 1);
  b.attach(1);
  MemoryUse use;
  use.context = mebibytes(1);
  b.say(1, Usage{.request = 0, .use = use, .stuck = 0});
  if (is_first) b.settle_in(3, 1, 60);
  b.queue_up(2, 2, 60);
  b.stop(1);
  b.stop(3);
  b.pass_by_timers(6min);
  CHECK(cancels_of(b, 1) > 0);
}

TEST_CASE("If a tenant is stopped on two GPUs, it is overdue only on the GPU where others have no room") {
  Bench b = bench({.cancel = true});
  b.come(1, 1);
  b.attach(1);
  b.grow(1, 30, 0);
  b.tell(1, 30, 30);
  b.come(3, 1);
  b.attach(3, kOther);
  b.grow(3, 60, 0);
  b.tell(3, 60, 60);
  b.come(2, 2);
  b.attach(2, kOther);
  b.grow(2, 60, 0);
  b.release(2, true, Bench::use(60, 0));
  const auto takes_turn = [&b](std::uint64_t id) {
    if (b.tenant(id).phase == Phase::leaving) b.release(id, true, Bench::use(60, 0));
    if (b.tenant(id).phase == Phase::entering) b.ready(id, 60);
  };
  for (const std::uint64_t id : {4, 5}) b.queue_up(id, id, 60);  // tenants 4 and 5 take turns beside tenant 1
  b.stop(1);
  b.stop(3);
  for (int i = 0; i < 360; ++i) {
    b.pass_by_timers(1s);
    for (const std::uint64_t id : {4, 5}) takes_turn(id);
  }
  REQUIRE(cancels_of(b, 1) > 0);
  for (const Overstay& its : b.overstays) CHECK(its.gpu == kOther);
}

TEST_CASE("If root has frozen the cgroup of a process, others wait, and the arbiter does nothing") {
  Bench b = revoked({.cancel = true});
  b.handle(Looked{.session = SessionId{1}, .stopped = true, .suspended = true});
  b.pass_by_timers(1h);
  CHECK(b.overstays.empty());
}

TEST_CASE(
    "Of several stopped tenants, the tenants with the most memory are to blame, as far as their memory would "
    "make room") {
  Bench b = bench({.cancel = true});
  b.settle_in(3, 3, 5);
  b.settle_in(1, 1, 85);
  const bool suspended = GENERATE(false, true);
  if (suspended) b.handle(Suspend{.tenant = TenantId{1}, .suspended = true});
  b.stop(1);
  b.stop(3);
  b.queue_up(2, 2, 20);
  for (int i = 0; i < 400; ++i) {
    b.pass_by_timers(1s);
    b.stop(1);
    b.stop(3);
  }
  CHECK((cancels_of(b, 1) > 0) == !suspended);
  CHECK(cancels_of(b, 3) == 0);
}

TEST_CASE("A process that stops itself beside others that have room is left alone") {
  Bench b = bench({.cancel = true});
  b.settle_in(1, 1, 20);
  b.stop(1);
  b.queue_up(2, 2, 60);
  b.queue_up(3, 3, 60);
  for (int i = 0; i < 60; ++i) {
    b.pass_by_timers(10s);
    for (std::uint64_t other : {2, 3})
      if (b.tenant(other).phase == Phase::leaving) b.release(other, true, Bench::use(60, 0));
  }
  CHECK(responses_to(b, 1).empty());
}

TEST_CASE("A stopped process does not protect a running process of its tenant") {
  Bench b = bench();
  b.settle_in(1, 1, 30);
  b.settle_in(3, 1, 30);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.stop(1);
  b.pass_by_timers(5min);
  CHECK(responses(b) == std::vector{Response::note, Response::warn});
  CHECK_FALSE(b.tenant(1).overdue->stopped);
}

}  // namespace
}  // namespace sharedgpu
