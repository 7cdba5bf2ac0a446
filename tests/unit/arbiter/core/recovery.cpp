// SPDX-License-Identifier: Apache-2.0
// An arbiter that starts after another arbiter has died: how it treats the leases in the ledger and the
// sessions that reconnect, during its recovery and afterwards.
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

constexpr Epoch kEpoch{7};  // the epoch of the leases in the ledger

LeaseKey key_of(std::uint64_t tenant, std::uint32_t step = 0) {
  return {.tenant = TenantId{tenant},
          .gpu = kGpu,
          .step = {.job = static_cast<std::uint32_t>(tenant), .step = step}};
}

Recovered with_leases(const std::vector<LeaseKey>& keys, unsigned expected, Nanoseconds since = 990s) {
  Recovered recovered;
  for (const LeaseKey& key : keys) recovered.leases.grant(key, kEpoch, since);
  recovered.last_record = since;
  recovered.last_epoch = kEpoch;
  recovered.expected_sessions = expected;
  return recovered;
}

// The Hello of a session that reconnects. `held`: the session claims to hold the lease.
Hello back(bool held, bool wants = false) {
  Hello hello;
  hello.resuming = 1;
  hello.held = held ? 1 : 0;
  hello.wants = wants ? 1 : 0;
  hello.epoch = kEpoch;
  return hello;
}

void come_again(Bench& b, std::uint64_t session, std::uint64_t tenant, bool held, bool wants = false) {
  b.come(session, tenant, back(held, wants));
  b.attach(session);
}

void come_back_in_step(Bench& b, std::uint64_t session, const LeaseKey& key, bool held) {
  b.handle(SessionCame{.session = SessionId{session},
                       .tenant = key.tenant,
                       .step = key.step,
                       .cap = {},
                       .expected = true,
                       .hello = back(held)});
  b.attach(session);
}

// Lets the recovery period time out without a further report of a session.
void end_recovery(Bench& b) { b.pass_by_timers(2s); }

TEST_CASE("The epoch of an open lease is not used again") {
  Recovered recovered = with_leases({key_of(1)}, 1);
  recovered.last_epoch = Epoch{3};  // lower than the epoch of the open lease
  Bench b(std::move(recovered));
  b.come(2, 2);
  CHECK(b.epoch(2) > kEpoch);
}

TEST_CASE("The recovery ends as soon as all expected sessions have reported or ended") {
  Bench b(with_leases({key_of(1)}, 2));
  b.come(3, 3);
  b.attach(3);
  REQUIRE_FALSE(b.open(3));
  come_again(b, 1, 1, true);
  b.tell(1, 10, 10);
  CHECK_FALSE(b.open(3));
  SECTION("the last one tells") {
    come_again(b, 2, 2, false);
    CHECK_FALSE(b.open(3));
    b.release(2, 10, false);
  }
  SECTION("the last one dies before it has told") {
    b.come(2, 2, back(false));
    CHECK_FALSE(b.open(3));
    b.handle(SessionGone{.session = SessionId{2}});
  }
  CHECK(b.open(3));
}

TEST_CASE("All sessions of a tenant drain if one of them reconnects without the lease") {
  Bench b(with_leases({key_of(1)}, 2));
  come_again(b, 1, 1, true);
  REQUIRE(b.open(1));
  b.come(2, 1, back(false));
  CHECK_FALSE(b.open(1));
  REQUIRE(b.sent<Revoke>(1));
  b.attach(2);
  REQUIRE(b.sent<Revoke>(2));
  b.release(1, false, Bench::use(10, 10));
  CHECK(b.holds(1));
  b.release(2, false, Bench::use(10, 10));
  CHECK_FALSE(b.holds(1));
}

TEST_CASE("Growth that was reported and never granted is not promised after the recovery") {
  Bench b(with_leases({key_of(1), key_of(2)}, 2));
  come_again(b, 1, 1, true);
  b.grow(1, 60, 20);
  come_again(b, 2, 2, true);
  b.grow(2, 60, 20);
  // The tenants do not fit together. The tenant that keeps its turn gets its memory at once, since the other
  // tenant has only 20 MiB on the GPU instead of 60.
  CHECK_FALSE((b.open(1) && b.open(2)));
  REQUIRE((b.open(1) || b.open(2)));
  CHECK(b.granted(b.open(1) ? 1 : 2));
}

TEST_CASE("A pin request beyond the free memory waits until others have evicted, or for 10 s") {
  Bench b(with_leases({key_of(1)}, 2));
  come_again(b, 1, 1, true);
  b.tell(1, 60, 60);
  b.pass_by_timers(1ms);
  come_again(b, 2, 2, false);
  b.grow(2, 0, 0, 50);
  const Nanoseconds begun = b.now;
  b.release(2, false, Bench::use(0, 0, 50));
  REQUIRE_FALSE(b.sent<Verdict>(2));
  SECTION("it is given up") {
    b.tell(1, 51, 51);
    CHECK_FALSE(b.sent<Verdict>(2));
    b.tell(1, 50, 50);
    CHECK(b.granted(2));
  }
  SECTION("it is not") {
    while (b.timer && !b.sent<Verdict>(2)) b.pass_to_timer();
    CHECK(b.refused(2));
    CHECK(b.now - begun == 10s);
  }
}

TEST_CASE(
    "Growth for which only unverified claims leave no room waits for the first surveys after a recovery") {
  Bench b(with_leases({key_of(1)}, 2), {.fixed = 10s}, {}, {}, 5s);
  come_again(b, 1, 1, true);
  b.tell(1, 30, 30);
  const bool asks_before = GENERATE(true, false);
  if (asks_before) b.grow(1, 60, 30);
  b.pass_by_timers(1ms);
  come_again(b, 2, 2, false);  // session 2 claims no lease, and then reports 60 MiB of pinned memory
  b.say(2, Usage{.request = 0, .use = Bench::use(0, 0, 60), .stuck = 0});
  b.release(2, false, Bench::use(0, 0, 60));
  if (!asks_before) b.grow(1, 60, 30);
  REQUIRE_FALSE(b.core->in_grace());
  REQUIRE_FALSE(b.refused(1));
  REQUIRE_FALSE(b.granted(1));
  SECTION("they show nothing of it") {
    bool granted = false;
    for (int i = 0; i < 4 && !granted; ++i) {
      b.now += 1s;
      b.handle(
          Surveyed{.gpu = kGpu,
                   .found = GpuSurvey{.unmanaged = {},
                                      .limit = mebibytes(100),
                                      .reserve = mebibytes(20),
                                      .sessions = {{SessionId{1}, mebibytes(31)}, {SessionId{2}, Bytes{}}}}});
      REQUIRE_FALSE(b.refused(1));
      granted = b.granted(1);
    }
    CHECK(granted);
  }
  SECTION("none comes") {
    const Nanoseconds begun = b.now;
    while (b.timer && !b.sent<Verdict>(1) && b.now - begun < 10s) b.pass_to_timer();
    CHECK(b.refused(1));
    CHECK(b.now - begun <= 5s);
    CHECK(b.now - begun >= 3s);  // the tenant's turn is to end
  }
}

TEST_CASE("Growth that exceeds the GPU is refused as the recovery ends") {
  Bench b(with_leases({key_of(1)}, 1));
  come_again(b, 1, 1, false);
  b.tell(1, 30, 30);
  b.grow(1, 130, 30);
  REQUIRE_FALSE(b.refused(1));
  b.release(1, false, Bench::use(30, 30));
  CHECK(b.refused(1));
}

TEST_CASE("If a tenant's other sessions never come back, its drained session can have its turn") {
  Bench b(with_leases({key_of(1)}, 2));
  come_again(b, 1, 1, false);
  b.tell(1, 30, 30);
  b.release(1, false, Bench::use(30, 30));
  CHECK(b.holds(1));  // another session may still hold the lease
  end_recovery(b);
  CHECK_FALSE(b.holds(1));
  b.ready(1, 30);
  CHECK(b.open(1));
}

TEST_CASE("A turn that continues after a restart is as old as its lease") {
  Bench b(with_leases({key_of(1)}, 1, 995s));
  come_again(b, 1, 1, true);
  b.tell(1, 60, 60);
  b.queue_up(2, 2, 60);
  REQUIRE(b.open(1));
  b.pass_by_timers(4999ms);
  CHECK(b.open(1));
  b.pass_by_timers(1ms);
  CHECK_FALSE(b.open(1));
}

TEST_CASE("If a session that reconnects is the first of its tenant to wait, the tenant waits from then on") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.release(1, false, Bench::use(60, 60));
  b.tell(1, 60, 40);
  b.ready(2, 60);
  REQUIRE(b.open(2));
  b.queue_up(3, 3, 90);
  b.pass_by_timers(1s);
  come_again(b, 4, 1, false, true);
  b.release(4, true, Bench::use(30, 0));
  b.pass_by_timers(9s);
  REQUIRE(b.sent<Revoke>(2));
  b.release(2, false, Bench::use(60, 60));
  b.tell(2, 60, 0);
  b.tell(1, 60, 0);
  CHECK_FALSE(b.sent<Restore>(1));
  CHECK(b.told[3].epoch > b.told[1].epoch);  // tenant 3 has waited longer
}

TEST_CASE("The lease of a step that has not reconnected yet continues beside the lease of another step") {
  Bench b(with_leases({key_of(1, 0), key_of(1, 1)}, 2));
  come_back_in_step(b, 1, key_of(1, 0), true);
  b.tell(1, 10, 10);
  b.pass_by_timers(500ms);
  CHECK(b.written.open(key_of(1, 1)).has_value());
  come_back_in_step(b, 2, key_of(1, 1), true);
  b.tell(2, 10, 10);
  b.pass_by_timers(2s);
  REQUIRE(b.written.open(key_of(1, 1)).has_value());
  CHECK(b.written.open(key_of(1, 1))->since == 990s);
  CHECK(b.open(1));
  CHECK(b.open(2));
}

TEST_CASE("A session that reconnects and has not drained is at work: its growth waits for room") {
  Bench b;
  b.settle_in(1, 1, 60);
  come_again(b, 2, 2, false);
  REQUIRE(b.sent<Revoke>(2));
  b.tell(2, 30, 30);
  b.grow(2, 60, 30);
  CHECK_FALSE(b.sent<Verdict>(2));
  b.release(2, true, Bench::use(60, 30));
  CHECK(b.granted(2));
  CHECK(b.sent<Verdict>(2)->allowed == mebibytes(30));
}

TEST_CASE("A tenant whose lease was revoked enters by a Restore, even without memory") {
  Bench b;
  come_again(b, 1, 1, false);
  REQUIRE(b.sent<Revoke>(1));
  const Epoch revoked = b.epoch(1);
  b.release(1, true, MemoryUse{});
  CHECK_FALSE(b.open(1));
  REQUIRE(b.sent<Restore>(1));
  CHECK(b.sent<Restore>(1)->epoch > revoked);
  b.ready(1, 0);
  CHECK(b.open(1));
}

TEST_CASE("A lease to which no session has reconnected ends when its tenant begins at zero") {
  Bench b(with_leases({key_of(1)}, 1));
  const Actions ended = b.core->forget(TenantId{1});
  REQUIRE(ended.size() == 1);
  const auto* lease = std::get_if<RecordLease>(&ended.front());
  REQUIRE(lease != nullptr);
  CHECK_FALSE(lease->grant);
  CHECK(lease->key == key_of(1));
  CHECK(lease->epoch == kEpoch);
  CHECK(lease->at == 990s);
}

// ---- sessions whose process reconnects ----

TEST_CASE("The memory of a process is counted exactly once between its reconnection and its report") {
  Bench b({}, {.fixed = 10s});
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.come(3, 1);  // session 3 has no GPU yet
  CHECK(b.gpu().promised == mebibytes(60));
  CHECK(b.holds(1));
  b.pass_by_timers(10s);
  REQUIRE_FALSE(b.open(1));
  CHECK(b.holds(1));
  const Bytes promised = b.gpu().promised;
  CHECK(promised <= mebibytes(100));
  b.handle(SessionGone{.session = SessionId{1}, .heir = SessionId{3}});
  CHECK(b.sent<Attached>(3));
  REQUIRE(b.sent<Revoke>(3));
  CHECK(b.session(3).use.footprint() == mebibytes(60));
  CHECK(b.gpu().promised == promised);
  b.tell(3, 60, 60);
  CHECK(b.gpu().promised == promised);
  CHECK(b.holds(1));
  b.release(3, 60, true);
  CHECK_FALSE(b.holds(1));
  REQUIRE(b.sent<Evict>(3));
  b.tell(3, 60, 40);
  b.ready(2, 60);
  CHECK(b.open(2));
}

TEST_CASE("The return of a process that fills the GPU causes no refusal") {
  Bench b;
  b.settle_in(1, 1, 80);
  b.settle_in(2, 2, 10);
  b.come(3, 1);
  b.grow(2, 15, 10);
  CHECK(b.granted(2));
  b.handle(SessionGone{.session = SessionId{1}, .heir = SessionId{3}});
  b.grow(2, 20, 15);
  CHECK(b.granted(2));
  b.tell(3, 80, 80);
  CHECK(b.session(3).use.resident == mebibytes(80));
  CHECK(b.gpu().promised == mebibytes(100));
  CHECK(b.open(2));
}

TEST_CASE("A process that reconnects has no more memory than before, however often it reconnects") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.succeed(1, 2);
  b.succeed(2, 3);
  CHECK(b.session(3).use.resident == mebibytes(60));
  SECTION("and what it reports is believed") { b.tell(3, 60, 50); }
  SECTION("and more is not") { b.say(3, Usage{.request = 0, .use = Bench::use(90, 50, 20), .stuck = 0}); }
  CHECK(b.session(3).use.swappable == mebibytes(60));
  CHECK(b.session(3).use.resident == mebibytes(50));
  CHECK(b.session(3).use.pinned == Bytes{});
}

TEST_CASE("Others wait for a process that reconnects twice before any arbiter knows its memory") {
  Bench b(with_leases({key_of(1)}, 1));
  const bool attached = GENERATE(true, false);
  b.come(1, 1, back(true));
  if (attached) b.attach(1);
  b.succeed(1, 2);
  if (!attached) b.attach(2);
  CHECK(b.core->in_grace());
  REQUIRE(b.last_sent<Revoke>(2));
  b.tell(2, 60, 60);
  CHECK(b.session(2).use.resident == mebibytes(60));
  b.release(2, 60, true);
  CHECK_FALSE(b.core->in_grace());
}

// Session 1 has drained, and its memory still fills the GPU. Tenant 2 has session 2 and the new session 3,
// which was granted memory for its first turn. This turn of tenant 2 is beginning.
Bench with_newcomer_on_its_way_in() {
  Bench b({}, {.fixed = 10s});
  b.settle_in(1, 1, 100);
  b.queue_up(2, 2, 60);
  b.come(3, 2);
  b.attach(3);
  b.grow(3, 20, 0);
  REQUIRE(b.granted(3));
  b.pass_by_timers(10s);
  b.release(1, 100, true);
  REQUIRE(b.tenant(2).phase == Phase::entering);
  return b;
}

TEST_CASE("A process that reconnects while it enters has no turn before its memory is restored") {
  Bench b = with_newcomer_on_its_way_in();
  const bool told = GENERATE(false, true);
  if (told) b.tell(1, 100, 20);
  REQUIRE(b.session(3).restoring == told);
  b.succeed(3, 4);
  CHECK(b.sent<Revoke>(4));
  b.tell(4, 20, 0);
  b.ready(2, 60);
  CHECK_FALSE(b.open(4));
  CHECK_FALSE(b.open(2));
}

TEST_CASE("Others wait for a process that reconnects while it may fill memory") {
  Bench b = with_newcomer_on_its_way_in();
  b.tell(1, 100, 20);
  REQUIRE(b.session(3).restoring);
  b.handle(Suspend{.tenant = TenantId{2}, .suspended = true});
  REQUIRE(b.tenant(2).phase == Phase::leaving);
  b.succeed(3, 4);
  REQUIRE(b.sent<Revoke>(4));
  b.tell(4, 20, 5);
  b.release(2, true, Bench::use(60, 0));
  CHECK(b.tenant(2).phase == Phase::leaving);
  CHECK(b.session(4).resident_limit == mebibytes(20));
}

TEST_CASE("A process that reconnects keeps its place in the queue") {
  Bench b({}, {.fixed = 10s});
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  const Nanoseconds since = b.tenant(2).waiting_since;
  b.pass_by_timers(5s);
  b.succeed(2, 3);
  CHECK(b.tenant(2).wants);
  b.release(3, true, Bench::use(60, 0));
  CHECK(b.tenant(2).waiting_since == since);
}

}  // namespace
}  // namespace sharedgpu
