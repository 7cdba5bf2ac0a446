// SPDX-License-Identifier: Apache-2.0
// Tests which reports of sessions the core believes because of surveys, and how processes without a session
// reduce the capacity.
#include <algorithm>
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

using Shown = std::map<std::uint64_t, unsigned>;  // session -> MiB of its memory that a survey finds

// Lets a second pass and then handles a survey.
void survey(Bench& b, const Shown& shown, unsigned unmanaged = 0) {
  b.now += 1s;
  GpuSurvey found{.unmanaged = mebibytes(unmanaged), .limit = mebibytes(100), .reserve = mebibytes(20)};
  for (const auto& [session, size] : shown) found.sessions[SessionId{session}] = mebibytes(size);
  b.handle(Surveyed{.gpu = kGpu, .found = found});
}

void claim_context(Bench& b, std::uint64_t session, unsigned size) {
  MemoryUse use;
  use.context = mebibytes(size);
  b.say(session, Usage{.request = 0, .use = use, .stuck = 0});
}

// Connects, and reports `size` as pinned.
void pin(Bench& b, std::uint64_t session, unsigned size) {
  b.come(session, session);
  b.attach(session);
  b.grow(session, 0, 0, size);
  REQUIRE(b.granted(session));
}

// ---- claims ----

TEST_CASE("Pinned memory that two surveys do not show takes nothing from others") {
  Bench b;
  b.settle_in(1, 1, 10);
  pin(b, 2, 60);
  SECTION("the process has nothing on the GPU") {
    for (int i = 0; i < 3; ++i) survey(b, {{1, 12}, {2, 0}});
    CHECK(b.session(2).evidence.nothing_there());
  }
  SECTION("it has a context alone") {
    for (int i = 0; i < 3; ++i) survey(b, {{1, 12}, {2, 1}});
    CHECK_FALSE(b.session(2).evidence.nothing_there());
  }
  b.grow(1, 90, 10);
  CHECK(b.granted(1));
}

// The turn of tenant 1 is over. The tenant has drained, has been ordered to evict, and reports that it cannot
// evict.
Bench one_keeps(const Shown& shown) {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.release(1, 60, true);
  REQUIRE(b.sent<Evict>(1));
  for (int i = 0; i < 3; ++i) survey(b, shown);
  b.say(1, Usage{.request = 0, .use = Bench::use(60, 60), .stuck = 1});
  return b;
}

TEST_CASE("The arbiter plans around memory that a session does not evict, as far as two surveys show it") {
  SECTION("it is there") { CHECK(one_keeps({{1, 61}}).session(1).use.resident == mebibytes(60)); }
  SECTION("it has a context alone") {
    const Bench b = one_keeps({{1, 1}});
    CHECK(b.session(2).resident_limit == mebibytes(60));
    CHECK(b.gpu().promised < mebibytes(65));
  }
  SECTION("nobody looks") { CHECK(one_keeps({}).session(1).use.resident == mebibytes(60)); }
}

TEST_CASE("Growth that waits for surveys is granted when the surveys show no memory of others") {
  Bench b;
  b.settle_in(1, 1, 10);
  survey(b, {{1, 12}});
  pin(b, 2, 60);
  b.grow(1, 90, 10);
  CHECK_FALSE(b.granted(1));
  CHECK_FALSE(b.refused(1));
  bool granted = false;
  for (int i = 0; i < 4 && !granted; ++i) {
    survey(b, {{1, 12}, {2, 0}});
    granted = b.granted(1);
  }
  CHECK(granted);
}

TEST_CASE("Pinned memory that surveys show is not handed out to others") {
  Bench b;
  b.settle_in(1, 1, 10);
  pin(b, 2, 60);
  for (int i = 0; i < 4; ++i) survey(b, {{1, 12}, {2, 61}});
  b.grow(1, 90, 10);
  CHECK(b.refused(1));
}

TEST_CASE("Pinned memory that was granted after the survey before the last one is believed") {
  Bench b;
  b.settle_in(1, 1, 10);
  for (int i = 0; i < 3; ++i) survey(b, {{1, 12}});
  pin(b, 2, 60);
  survey(b, {{1, 12}, {2, 1}});
  survey(b, {{1, 12}, {2, 1}});
  CHECK(b.gpu().promised >= mebibytes(70));
  survey(b, {{1, 12}, {2, 1}});
  CHECK(b.gpu().promised < mebibytes(20));
}

TEST_CASE("Pinned memory that is asked for and not granted yet is no claim") {
  Bench b;
  b.settle_in(1, 1, 80);
  b.queue_up(2, 2, 30);
  b.pass_by_timers(10s);
  b.release(1, 80, true);
  b.tell(1, 80, 70);
  b.ready(2, 30);
  REQUIRE(b.tenant(2).phase == Phase::running);
  b.grow(2, 30, 30, 20);
  REQUIRE_FALSE(b.granted(2));  // tenant 1 has to evict more memory first
  REQUIRE_FALSE(b.refused(2));
  for (int i = 0; i < 3; ++i) survey(b, {{1, 71}, {2, 31}});
  b.tell(1, 80, 50);
  REQUIRE(b.granted(2));
  CHECK(b.gpu().promised == mebibytes(100));
}

TEST_CASE("A survey that misses memory once takes nothing from a session that has it") {
  Bench b;
  pin(b, 1, 60);
  for (int i = 0; i < 3; ++i) survey(b, {{1, 62}});
  survey(b, {{1, 5}});
  CHECK(b.gpu().promised >= mebibytes(60));
  survey(b, {{1, 62}});
  CHECK(b.gpu().promised >= mebibytes(60));
}

TEST_CASE("Memory counts again as soon as a survey shows it") {
  Bench b;
  pin(b, 1, 60);
  for (int i = 0; i < 3; ++i) survey(b, {{1, 0}});
  REQUIRE(b.gpu().promised == Bytes{});
  survey(b, {{1, 61}});
  CHECK(b.gpu().promised >= mebibytes(60));
}

TEST_CASE("Amounts that differ a little count as equal") {
  Bench b;
  pin(b, 1, 64);
  for (int i = 0; i < 4; ++i) survey(b, {{1, 61}});
  CHECK(b.gpu().promised == mebibytes(64));
}

TEST_CASE(
    "Contexts are believed as far as surveys show them, and before the first survey a little is believed") {
  Bench b;
  for (std::uint64_t id : {1, 2}) {
    b.come(id, id);
    b.attach(id);
  }
  survey(b, {{1, 0}, {2, 0}});
  claim_context(b, 1, 30);
  claim_context(b, 2, 30);
  // Contexts that no survey has shown count as a sixteenth of the GPU at most, which fits into the 20 MiB
  // beyond the capacity.
  CHECK(b.gpu().usable == mebibytes(100));
  survey(b, {{1, 29}, {2, 0}});
  CHECK(b.gpu().usable < mebibytes(92));
  CHECK(b.gpu().usable > mebibytes(80));
  survey(b, {{1, 29}, {2, 0}});
  survey(b, {{1, 29}, {2, 0}});
  CHECK(b.gpu().usable == mebibytes(90));
}

TEST_CASE("Growth waits for the first survey that shows the memory of others") {
  Bench b;
  pin(b, 1, 60);
  survey(b, {});
  b.come(2, 2);
  b.attach(2);
  b.grow(2, 90, 0);
  CHECK_FALSE(b.refused(2));
  survey(b, {{1, 61}, {2, 1}});
  CHECK(b.refused(2));
}

TEST_CASE("Growth waits for the first survey if a survey is expected") {
  Bench b({}, {.fixed = 10s}, {}, {}, 5s);
  b.come(2, 2);
  b.attach(2);
  b.pass_by_timers(1s);
  for (const std::uint64_t session : {1, 3, 4}) {
    b.come(session, session);
    b.attach(session);
    claim_context(b, session, 30);
  }
  b.grow(2, 50, 0);
  REQUIRE_FALSE(b.sent<Verdict>(2));
  SECTION("which shows that others have nothing") {
    bool granted = false;
    for (int i = 0; i < 3 && !granted; ++i) {
      survey(b, {{1, 0}, {2, 1}, {3, 0}, {4, 0}});
      REQUIRE_FALSE(b.refused(2));
      granted = b.granted(2);
    }
    CHECK(granted);
  }
  SECTION("and for no longer than it may take") {
    const Nanoseconds begun = b.now;
    while (b.timer && !b.sent<Verdict>(2) && b.now - begun < 10s) b.pass_to_timer();
    CHECK(b.refused(2));
    CHECK(b.now - begun == 4s);
  }
}

TEST_CASE("A session is believed if surveys cannot show its memory") {
  Bench b;
  b.settle_in(1, 1, 10);
  pin(b, 2, 60);
  for (int i = 0; i < 4; ++i) {
    b.now += 1s;
    const GpuSurvey found{.unmanaged = {},
                          .limit = mebibytes(100),
                          .reserve = mebibytes(20),
                          .sessions = {{SessionId{1}, mebibytes(12)}, {SessionId{2}, std::nullopt}}};
    b.handle(Surveyed{.gpu = kGpu, .found = found});
  }
  CHECK(b.session(2).evidence.shown() == std::nullopt);
  b.grow(1, 90, 10);
  CHECK(b.refused(1));
}

TEST_CASE("A tenant that has nothing on the GPU does not make other tenants take turns") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 75);
  b.want(2);
  for (int i = 0; i < 3; ++i) survey(b, {{1, 61}, {2, 0}});
  b.pass_by_timers(60s);
  CHECK(b.tenant(1).phase == Phase::running);
  CHECK(b.session(1).gate_open);
}

TEST_CASE("A session that waits without memory on the GPU is not doubted while it has a context") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 75);
  b.want(2);
  for (int i = 0; i < 3; ++i) survey(b, {{1, 61}, {2, 1}});
  b.pass_by_timers(60s);
  CHECK(b.tenant(1).phase != Phase::running);
}

TEST_CASE("Evictable memory that is not on the GPU, as two surveys show, makes nobody take turns with it") {
  const auto [backend, shown, takes_turns] = GENERATE(table<Backend, unsigned, bool>(
      {{Backend::swap, 1, false}, {Backend::swap, 61, true}, {Backend::managed, 1, true}}));
  CAPTURE(shown, takes_turns);
  Bench b;
  Hello hello;
  hello.backend = backend;
  b.come(1, 1, hello);
  b.attach(1);
  b.grow(1, 60, 0);
  b.tell(1, 60, 60);
  for (int i = 0; i < 3; ++i) survey(b, {{1, shown}});
  b.come(2, 2);
  b.attach(2);
  b.grow(2, 75, 0);
  if (!takes_turns) CHECK(b.granted(2));
  b.pass_by_timers(1s);
  CHECK(b.tenant(1).phase == Phase::running);
  CHECK((b.tenant(2).phase == Phase::running) == !takes_turns);
  if (takes_turns) return;
  CHECK(b.gpu().promised < mebibytes(85));
  // Once a survey shows the reported memory, the core counts it again.
  survey(b, {{1, 61}, {2, 76}});
  b.want(2);
  b.pass_by_timers(1s);
  CHECK((b.tenant(1).phase == Phase::running) != (b.tenant(2).phase == Phase::running));
}

TEST_CASE("Pinned memory that surveys do not show takes nothing from the evictable memory that they show") {
  Bench b;
  b.settle_in(1, 1, 30);
  b.grow(1, 30, 30, 40);
  REQUIRE(b.granted(1));
  for (int i = 0; i < 3; ++i) survey(b, {{1, 31}});
  CHECK(b.session(1).disproved == Bytes{});
  CHECK(b.session(1).evidence.absent() > mebibytes(30));
  CHECK(b.gpu().promised >= mebibytes(30));
}

TEST_CASE("Evictable memory counts as absent only after two surveys in a row have not shown it") {
  const auto claim = [](unsigned size) {
    return Claimed{.unevictable = {}, .present = mebibytes(size), .evictable = mebibytes(size), .all = {}};
  };
  Evidence evidence;
  evidence.show(mebibytes(1), claim(60), {});
  CHECK(evidence.disproved() == Bytes{});  // the memory may have been allocated since the survey
  evidence.show(mebibytes(1), claim(60), {});
  CHECK(evidence.disproved() == Bytes{});
  evidence.show(mebibytes(1), claim(60), {});
  CHECK(evidence.disproved() > mebibytes(58));
  SECTION("it leaves") { evidence.show(mebibytes(1), claim(0), {}); }
  SECTION("it leaves and comes back between two surveys") {
    evidence.between_surveys(Bytes{});
    evidence.between_surveys(mebibytes(60));
    evidence.show(mebibytes(1), claim(60), {});
  }
  SECTION("it comes") { evidence.show(mebibytes(60), claim(60), {}); }
  SECTION("surveys cannot show the process") { evidence.pass_over(); }
  CHECK(evidence.disproved() == Bytes{});
}

// ---- memory that sessions hide ----

// Handles a survey that shows the memory of sessions in `shown`, and `hidden` MiB of hidden memory.
void survey_hidden(Bench& b, unsigned hidden, const Shown& shown) {
  b.now += 1s;
  GpuSurvey found{.unmanaged = {}, .limit = mebibytes(100), .reserve = mebibytes(20)};
  found.hidden = mebibytes(hidden);
  for (const auto& [session, size] : shown) found.sessions[SessionId{session}] = mebibytes(size);
  b.handle(Surveyed{.gpu = kGpu, .found = found});
}

TEST_CASE("Hidden memory lowers the usable memory by what exceeds the reserve") {
  Bench b;
  b.settle_in(1, 1, 10);
  for (const unsigned hidden : {0u, 10u, 20u, 21u, 30u, 90u}) {
    survey_hidden(b, hidden, {{1, 11}});
    CHECK(b.gpu().unmanaged == mebibytes(hidden));
    CHECK(b.gpu().usable == mebibytes(std::min(100u, 120 - hidden)));
  }
  SECTION("it is given up") { survey(b, {{1, 11}}); }
  SECTION("nobody looks any more") { b.handle(Surveyed{.gpu = kGpu, .found = std::nullopt}); }
  CHECK(b.gpu().usable == mebibytes(100));
}

TEST_CASE("Memory that a session does not report counts in its tenant's footprint") {
  Bench b;
  b.come(1, 1, {}, mebibytes(50));
  b.attach(1);
  b.grow(1, 10, 0);
  b.tell(1, 10, 10);
  const auto survey_unreported = [&](unsigned size) {
    b.now += 1s;
    GpuSurvey found{.unmanaged = {}, .limit = mebibytes(100), .reserve = mebibytes(20)};
    found.hidden = mebibytes(size);
    if (size > 0) found.unreported[SessionId{1}] = mebibytes(size);
    found.sessions[SessionId{1}] = mebibytes(11 + size);
    b.handle(Surveyed{.gpu = kGpu, .found = found});
  };
  survey_unreported(20);
  CHECK(b.core->sighting().sessions[0].footprint == mebibytes(30));
  CHECK(b.core->sighting().sessions[0].resident == mebibytes(30));
  b.say(1, MemoryQuery{.request = 1});
  CHECK(b.sent<MemoryView>(1)->free == mebibytes(20));
  b.grow(1, 35, 10);  // the sum exceeds the tenant's limit only because of the hidden memory
  CHECK_FALSE(b.granted(1));
  CHECK_FALSE(b.refused(1));
  SECTION("until it is freed") {
    survey_unreported(0);
    CHECK(b.granted(1));
    CHECK(b.core->sighting().sessions[0].footprint == mebibytes(35));
  }
  SECTION("for as long as it stays") {
    for (int i = 0; i < 62 && !b.refused(1); ++i) survey_unreported(20);
    CHECK(b.refused(1));
  }
}

TEST_CASE("Growth that does not fit beside hidden memory waits, and is no failure") {
  Bench b;
  b.settle_in(1, 1, 10);
  survey_hidden(b, 70, {{1, 11}});
  b.grow(1, 75, 10);
  CHECK_FALSE(b.granted(1));
  CHECK_FALSE(b.refused(1));
  survey(b, {{1, 11}});
  CHECK(b.granted(1));
}

TEST_CASE("A session is allowed the most that it could have had since the last survey") {
  Bench b;
  b.settle_in(1, 1, 60);
  survey(b, {{1, 61}});
  SECTION("it evicts") {
    b.queue_up(2, 2, 60);
    b.pass_by_timers(10s);
    b.release(1, 60, true);
    b.tell(1, 60, 0);
  }
  SECTION("it takes and gives back") {
    b.tell(1, 0, 0);
    survey(b, {{1, 61}});
    b.grow(1, 0, 0, 60);
    REQUIRE(b.granted(1));
    b.tell(1, 0, 0);
  }
  CHECK(b.session(1).allowed.memory == mebibytes(60));
  survey(b, {{1, 61}, {2, 1}});
  CHECK(b.session(1).allowed.memory == Bytes{});
}

TEST_CASE("A session is allowed the memory that it may fill and has not reported yet") {
  Bench b;
  b.settle_in(1, 1, 10);
  b.grow(1, 60, 10);
  REQUIRE(b.granted(1));
  for (int i = 0; i < 3; ++i) {
    survey(b, {{1, 61}});
    CHECK(b.session(1).allowed.memory == mebibytes(60));
  }
}

TEST_CASE("A session is allowed pinned memory only if it was granted and surveys show it") {
  Bench b;
  b.settle_in(1, 1, 80);
  b.queue_up(2, 2, 30);
  b.pass_by_timers(10s);
  b.release(1, 80, true);
  b.tell(1, 80, 70);
  b.ready(2, 30);
  b.grow(2, 30, 30, 20);
  REQUIRE_FALSE(b.granted(2));
  CHECK(b.session(2).allowed.memory == mebibytes(30));
  b.tell(1, 80, 50);
  REQUIRE(b.granted(2));
  CHECK(b.session(2).allowed.memory == mebibytes(50));
  for (int i = 0; i < 4; ++i) survey(b, {{1, 51}, {2, 0}});
  CHECK(b.session(2).allowed.memory < mebibytes(31));
}

TEST_CASE("Contexts count only as far as the survey does not count them as hidden memory") {
  Bench b;
  for (std::uint64_t id : {1, 2}) {
    b.come(id, id);
    b.attach(id);
  }
  claim_context(b, 2, 30);
  const auto survey_contexts = [&](unsigned hidden) {
    GpuSurvey found{.unmanaged = {}, .limit = mebibytes(100), .reserve = mebibytes(20)};
    found.hidden = mebibytes(hidden);
    found.sessions = {{SessionId{1}, mebibytes(1)}, {SessionId{2}, mebibytes(30)}};
    found.contexts = {{SessionId{2}, mebibytes(2)}};
    b.handle(Surveyed{.gpu = kGpu, .found = found});
  };
  survey_contexts(0);
  CHECK(b.gpu().usable == mebibytes(100));
  survey_contexts(28);
  CHECK(b.gpu().usable == mebibytes(90));
  b.grow(1, 95, 0);
  CHECK_FALSE(b.refused(1));  // the growth waits, since the processes of these contexts may end
  CHECK_FALSE(b.granted(1));
  survey_contexts(0);
  CHECK(b.granted(1));
}

TEST_CASE("A session is allowed all contexts that it reports, even if only a part of them is believed") {
  Bench b;
  for (std::uint64_t id : {1, 2}) {
    b.come(id, 1);
    b.attach(id);
    claim_context(b, id, 20);
  }
  CHECK(b.session(2).use.context == mebibytes(10));  // both sessions together may have a quarter of the GPU
  CHECK(b.session(2).allowed.context == mebibytes(20));
  GpuSurvey found{.unmanaged = {}, .limit = mebibytes(100), .reserve = mebibytes(20)};
  for (const std::uint64_t id : {1, 2}) {
    found.sessions[SessionId{id}] = mebibytes(20);
    found.contexts[SessionId{id}] = mebibytes(20);
  }
  for (int i = 0; i < 3; ++i) b.handle(Surveyed{.gpu = kGpu, .found = found});
  CHECK(b.gpu().usable == mebibytes(80));
}

TEST_CASE("A process that reconnects for another GPU brings no evidence from its earlier GPU") {
  Bench b;
  pin(b, 1, 60);
  for (int i = 0; i < 3; ++i) survey(b, {{1, 61}});
  const bool same = GENERATE(true, false);
  b.come(2, 1);
  if (same)
    b.handle(SessionGone{.session = SessionId{1}, .heir = SessionId{2}});
  else
    b.attach(2, kOther);
  b.say(2, Usage{.request = 0, .use = Bench::use(0, 0, 60), .stuck = 0});
  CHECK(b.session(2).use.pinned == (same ? mebibytes(60) : Bytes{}));
  CHECK(b.session(2).evidence.shown() == (same ? std::optional(mebibytes(61)) : std::nullopt));
}

// ---- processes without a session ----

TEST_CASE("Unmanaged memory lowers the capacity by what exceeds a quarter of the reserve") {
  Bench b;
  b.settle_in(1, 1, 10);
  survey(b, {{1, 12}}, 5);
  CHECK(b.gpu().usable == mebibytes(100));
  survey(b, {{1, 12}}, 45);
  CHECK(b.gpu().usable == mebibytes(60));
  CHECK(b.gpu().capacity == mebibytes(100));
  CHECK(b.gpu().unmanaged == mebibytes(45));
  SECTION("it ends") { survey(b, {{1, 12}}); }
  SECTION("nobody looks any more") { b.handle(Surveyed{.gpu = kGpu, .found = std::nullopt}); }
  CHECK(b.gpu().usable == mebibytes(100));
}

TEST_CASE("Tenants take turns in the memory that unmanaged memory leaves") {
  Bench b;
  b.settle_in(1, 1, 40);
  b.settle_in(2, 2, 40);
  REQUIRE(b.tenant(1).phase == Phase::running);
  REQUIRE(b.tenant(2).phase == Phase::running);
  survey(b, {{1, 41}, {2, 41}}, 40);
  CHECK((b.tenant(1).phase == Phase::leaving) != (b.tenant(2).phase == Phase::leaving));
}

TEST_CASE("A tenant that runs alone stays, whatever surveys say") {
  Bench b;
  b.settle_in(1, 1, 75);
  survey(b, {{1, 76}}, 72);
  b.pass_by_timers(20s);
  CHECK(b.tenant(1).phase == Phase::running);
}

TEST_CASE("A tenant that does not fit beside unmanaged memory waits for its end") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 75);
  b.want(2);
  survey(b, {{1, 61}, {2, 1}}, 60);
  b.pass_by_timers(30s);
  CHECK(b.tenant(1).phase == Phase::running);
  survey(b, {{1, 61}, {2, 1}});
  CHECK((b.sent<Revoke>(1) || b.until_sent<Revoke>(1, 30s)));
}

TEST_CASE("Growth waits a minute for unmanaged memory to end") {
  Bench b;
  b.come(1, 1);
  b.attach(1);
  survey(b, {{1, 1}}, 72);
  b.grow(1, 75, 0);
  CHECK_FALSE(b.granted(1));
  CHECK_FALSE(b.refused(1));
  SECTION("it ends in time") {
    survey(b, {{1, 1}});
    CHECK(b.granted(1));
  }
  SECTION("it does not") {
    for (int i = 0; i < 58; ++i) {
      survey(b, {{1, 1}}, 72);
      REQUIRE_FALSE(b.refused(1));
    }
    b.pass(3s);
    CHECK(b.refused(1));
    b.grow(1, 74, 0);
    CHECK(b.refused(1));  // refused at once, since the growth has waited before
  }
  SECTION("a smaller one need not wait") {
    b.say(1, Usage{.request = 2, .use = Bench::use(20, 0), .stuck = 0});
    CHECK(b.granted(1));
  }
}

TEST_CASE("Growth waits a minute anew when other growth of the session has fitted meanwhile") {
  Bench b;
  b.come(1, 1);
  b.attach(1);
  survey(b, {{1, 1}}, 72);
  b.grow(1, 75, 0);
  for (int i = 0; i < 58; ++i) survey(b, {{1, 1}}, 72);
  b.pass(3s);
  REQUIRE(b.refused(1));
  SECTION("it fits") {
    b.grow(1, 20, 0);
    REQUIRE(b.granted(1));
    b.grow(1, 75, 20);
    CHECK_FALSE(b.refused(1));
    for (int i = 0; i < 58; ++i) {
      survey(b, {{1, 21}}, 72);
      REQUIRE_FALSE(b.refused(1));
    }
    b.pass(3s);
    CHECK(b.refused(1));
  }
  SECTION("it does not") {
    b.grow(1, 75, 0);
    CHECK(b.refused(1));
  }
}

TEST_CASE("Growth that exceeds the GPU is refused at once") {
  Bench b;
  b.come(1, 1);
  b.attach(1);
  survey(b, {{1, 1}}, 72);
  b.grow(1, 101, 0);
  CHECK(b.refused(1));
}

TEST_CASE("Growth in a turn that is about to end does not wait a minute") {
  Bench b;
  b.settle_in(1, 1, 40);
  b.queue_up(2, 2, 65);
  b.want(2);
  b.pass_by_timers(10s);
  REQUIRE(b.sent<Revoke>(1));
  survey(b, {{1, 41}, {2, 1}}, 10);
  b.grow(1, 99, 40);
  REQUIRE_FALSE(b.refused(1));
  b.pass_to_timer();
  while (!b.refused(1) && b.timer && *b.timer < b.now + 10s) b.pass_to_timer();
  CHECK(b.refused(1));
}

}  // namespace
}  // namespace sharedgpu
