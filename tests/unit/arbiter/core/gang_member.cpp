// SPDX-License-Identifier: Apache-2.0
// A tenant whose job spans nodes: the coordinator's orders begin and end its turns on this node.
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

// The job of tenant 1 runs on this node only; the job of tenant 2 also runs on other nodes. Session 1 belongs
// to tenant 1, and session 2 belongs to tenant 2. Session 1 has 60 of 100 MiB, and tenant 1 has the turn.
// Session 2 requests `size` MiB.
struct Node : Bench {
  GangOrder order{.possible = true, .settled = true};

  explicit Node(unsigned size = 60) {
    settle_in(1, 1, 60);
    come_as_gang(2, 2);
    attach(2);
    grow(2, size, 0);
    tell_gang();
  }
  void come_as_gang(std::uint64_t session, std::uint64_t tenant) {
    handle(SessionCame{.session = SessionId{session},
                       .tenant = TenantId{tenant},
                       .step = {.job = static_cast<std::uint32_t>(tenant), .step = 0},
                       .cap = {},
                       .job = static_cast<std::uint32_t>(tenant),
                       .hello = {}});
  }
  // Sends the coordinator's order. By `seen`, the order says that the coordinator has received the last
  // report.
  void tell_gang() {
    order.seen = reports[2].number;
    handle(GangOrdered{.tenant = TenantId{2}, .order = order});
  }
  void command(GangCommand what) {
    order.command = what;
    tell_gang();
  }
  GangReport report() { return reports.at(2); }
  Phase phase() const { return tenant(2).phase; }
  // Ends the turn of tenant 1, and gives tenant 2 the order to enter.
  void enter_turn() {
    want(2);
    pass_by_timers(11s);
    command(GangCommand::enter);
  }
  void begin_turn() {
    enter_turn();
    make_way(true);
    command(GangCommand::run);
  }
  // Tenant 1 leaves and evicts, and tenant 2 restores its memory. `wants`: tenant 1 waits for its next turn.
  void make_way(bool wants) {
    release(1, 60, wants);
    tell(1, 60, 40);
    ready(2, 60);
  }
  // The turn of tenant 2 ends, and the job's processes on another node have not drained.
  void drain_for_others() {
    begin_turn();
    pass_by_timers(11s);
    order.drains = true;
    command(GangCommand::leave);
    release(2, 60, true);
  }
};

TEST_CASE("A gang has no turn before its coordinator was heard, even if memory suffices") {
  Bench b;
  b.handle(SessionCame{
      .session = SessionId{1}, .tenant = TenantId{1}, .step = {}, .cap = {}, .job = 1, .hello = {}});
  b.attach(1);
  b.want(1);
  CHECK_FALSE(b.open(1));
  CHECK_FALSE(b.reports.at(1).offers);
  CHECK(b.reports.at(1).wants);
  b.handle(GangOrdered{.tenant = TenantId{1}, .order = GangOrder{.possible = true}});
  CHECK(b.reports.at(1).offers);
  CHECK_FALSE(b.open(1));
  b.handle(GangOrdered{.tenant = TenantId{1},
                       .order = GangOrder{.command = GangCommand::enter, .possible = true}});
  CHECK(b.reports.at(1).ready);
  CHECK_FALSE(b.open(1));
  b.handle(
      GangOrdered{.tenant = TenantId{1}, .order = GangOrder{.command = GangCommand::run, .possible = true}});
  CHECK(b.open(1));
  CHECK(b.holds(1));
}

TEST_CASE("A gang that is next is offered its turn, and the running set continues until the order comes") {
  Node b;
  b.want(2);
  CHECK_FALSE(b.report().offers);
  b.pass_by_timers(11s);
  CHECK(b.report().offers);
  CHECK(b.open(1));
  CHECK(b.phase() == Phase::out);
  SECTION("beside tenants that make nobody leave") {
    b.settle_in(3, 3, 20);
    CHECK(b.open(3));
    b.pass_by_timers(1min);
    CHECK(b.open(1));
    CHECK(b.report().offers);
  }
  SECTION("and no longer") {
    b.command(GangCommand::enter);
    CHECK_FALSE(b.open(1));
    CHECK(b.phase() == Phase::entering);
    CHECK_FALSE(b.report().ready);
  }
  SECTION("and nothing is offered while the gang cannot begin elsewhere") {
    b.order.possible = false;
    b.tell_gang();
    CHECK_FALSE(b.report().offers);
  }
}

TEST_CASE("Gates of a gang open by order, and close by order") {
  Node b;
  b.enter_turn();
  b.make_way(true);
  CHECK(b.report().ready);
  CHECK_FALSE(b.open(2));
  b.command(GangCommand::run);
  REQUIRE(b.open(2));
  b.pass_by_timers(11s);
  CHECK(b.report().ends);
  CHECK(b.open(2));
  b.command(GangCommand::leave);
  CHECK_FALSE(b.open(2));
  CHECK(b.phase() == Phase::leaving);
  CHECK_FALSE(b.report().drained);
}

TEST_CASE("The memory of a drained tenant stays where it is until the other nodes have drained") {
  Node b;
  b.drain_for_others();
  CHECK(b.report().drained);
  CHECK(b.holds(2));
  CHECK_FALSE(b.until_sent<Evict>(2, 1h));
  CHECK_FALSE(b.open(1));
  SECTION("it submits once more when it is told to") {
    b.order.steps = 1;
    b.tell_gang();
    CHECK(b.sent<Step>(2));
    CHECK_FALSE(b.report().drained);
    CHECK(b.report().steps == 1);
    b.release(2, 60, false);
    CHECK(b.report().drained);
  }
  SECTION("and then its lease ends") {
    b.order.drains = false;
    b.command(GangCommand::wait);
    CHECK_FALSE(b.holds(2));
    CHECK(b.phase() != Phase::leaving);
    CHECK(b.sent<Evict>(2));
  }
}

TEST_CASE("A gang that is out when it is told to submit once more has nothing to submit, and says so") {
  Node b;
  b.order.steps = 3;
  b.command(GangCommand::leave);
  REQUIRE(b.phase() == Phase::out);
  CHECK(b.report().steps == 3);
  CHECK(b.report().drained);
}

TEST_CASE("A gang whose process is stopped asks for the end of its turn") {
  Node b;
  b.begin_turn();
  b.handle(Looked{.session = SessionId{2}, .stopped = true});
  CHECK(b.report().ends);
  CHECK(b.open(2));
  b.command(GangCommand::leave);
  b.pass_by_timers(5s);
  CHECK(b.report().drained);
  CHECK_FALSE(b.holds(2));
}

TEST_CASE("An elder gang is offered the turn when the offer to a younger one has been taken back") {
  Node b;
  b.order.since = 2s;
  b.tell_gang();
  b.want(2);
  b.pass_by_timers(11s);
  REQUIRE(b.report().offers);
  b.come_as_gang(3, 3);
  b.attach(3);
  b.grow(3, 60, 0);
  GangOrder elder{.possible = true, .wanted = true, .settled = true, .since = 1s};
  const auto tell_elder = [&] {
    elder.seen = b.reports[3].number;
    b.handle(GangOrdered{.tenant = TenantId{3}, .order = elder});
  };
  tell_elder();
  CHECK_FALSE(b.report().offers);
  CHECK_FALSE(b.reports.at(3).offers);
  SECTION("not before") {
    b.pass_by_timers(1min);
    CHECK_FALSE(b.reports.at(3).offers);
  }
  SECTION("once that was seen") {
    b.tell_gang();
    CHECK(b.reports.at(3).offers);
    CHECK_FALSE(b.report().offers);
  }
}

TEST_CASE("If two gangs have waited equally long on this node, the elder gang is offered the turn") {
  Node b;
  b.order.since = 2s;
  b.tell_gang();
  b.come_as_gang(3, 3);
  b.attach(3);
  b.grow(3, 60, 0);
  b.handle(GangOrdered{
      .tenant = TenantId{3},
      .order = GangOrder{
          .seen = b.reports[3].number, .possible = true, .wanted = true, .settled = true, .since = 1s}});
  b.want(2);
  b.want(3);
  b.pass_by_timers(11s);
  CHECK(b.reports.at(3).offers);
  CHECK_FALSE(b.report().offers);
}

TEST_CASE("A turn that other nodes do not begin delays the turns of this node's tenants for a while") {
  Node b;
  b.want(2);
  b.queue_up(4, 4, 60);
  b.pass_by_timers(11s);
  REQUIRE(b.report().offers);
  CHECK(b.open(1));
  b.pass_by_timers(10s);
  CHECK_FALSE(b.open(1));
  b.release(1, 60, false);
  b.tell(1, 60, 40);
  b.ready(4, 60);
  REQUIRE(b.open(4));
  b.pass_by_timers(11s);
  CHECK(b.report().offers);
  CHECK(b.open(4));
}

TEST_CASE("A gang that can begin no turn makes nobody overdue") {
  Bench b({}, {.fixed = 10s}, {}, OveruseRules{.most = 20s, .cancel = true});
  b.settle_in(1, 1, 60);
  b.handle(SessionCame{.session = SessionId{2},
                       .tenant = TenantId{2},
                       .step = {.job = 2, .step = 0},
                       .cap = {},
                       .job = 2,
                       .hello = {}});
  b.attach(2);
  b.grow(2, 60, 0);
  GangOrder order{.seen = b.reports[2].number, .possible = true, .settled = true};
  bool overdue = false;
  SECTION("since it is stopped on another node") { order.stopped = true; }
  SECTION("since its nodes do not reach each other") { order.possible = false; }
  SECTION("and one that can does") { overdue = true; }
  b.handle(GangOrdered{.tenant = TenantId{2}, .order = order});
  b.want(2);
  b.handle(Looked{.session = SessionId{1}, .stopped = true});
  b.pass_by_timers(5min);
  CHECK(b.overstays.empty() == !overdue);
}

TEST_CASE("Two gangs that may still be taking their memory do not run beside each other") {
  Bench b({}, {.fixed = 10s}, 1s);
  GangOrder order[2];
  const auto tell = [&](std::uint64_t tenant) {
    order[tenant - 1].seen = b.reports[tenant].number;
    b.handle(GangOrdered{.tenant = TenantId{tenant}, .order = order[tenant - 1]});
  };
  for (const std::uint64_t tenant : {1, 2}) {
    b.handle(SessionCame{.session = SessionId{tenant},
                         .tenant = TenantId{tenant},
                         .step = {.job = static_cast<std::uint32_t>(tenant), .step = 0},
                         .cap = {},
                         .job = static_cast<std::uint32_t>(tenant),
                         .hello = {}});
    b.attach(tenant);
    order[tenant - 1] = {.possible = true, .wanted = true};
    tell(tenant);
  }
  REQUIRE(b.reports.at(1).offers);
  CHECK_FALSE(b.reports.at(2).offers);
  order[0].command = GangCommand::enter;
  tell(1);
  order[0].command = GangCommand::run;
  tell(1);
  REQUIRE(b.open(1));
  b.grow(1, 20, 20);
  b.pass_by_timers(500ms);
  CHECK_FALSE(b.reports.at(1).settled);
  CHECK_FALSE(b.reports.at(2).offers);
  b.pass_by_timers(2s);
  REQUIRE(b.reports.at(1).settled);
  order[0].settled = true;
  tell(1);
  CHECK(b.reports.at(2).offers);
}

TEST_CASE("A late process of a gang in its turn is granted nothing before it is in the running set") {
  Node b;
  b.handle(SessionGone{.session = SessionId{1}});
  b.order.settled = false;
  b.want(2);
  b.command(GangCommand::enter);
  b.ready(2, 60);
  b.command(GangCommand::run);
  REQUIRE(b.open(2));
  b.come_as_gang(3, 3);
  const GangOrder run{.command = GangCommand::run, .possible = true, .since = 1s};
  b.handle(GangOrdered{.tenant = TenantId{3}, .order = run});
  b.attach(3);
  CHECK(b.report().ends);
  REQUIRE_FALSE(b.open(3));
  b.grow(3, 30, 0);
  CHECK_FALSE(b.granted(3));
  b.command(GangCommand::leave);
  REQUIRE(b.tenant(3).phase == Phase::entering);
  CHECK((b.granted(3) || b.until_sent<Verdict>(3, 1s)));
}

TEST_CASE("A process that its coordinator may not know is granted nothing, even if there is room") {
  Node b;
  b.come_as_gang(3, 3);
  b.attach(3);
  b.grow(3, 10, 0);
  b.pass_by_timers(20s);
  CHECK_FALSE(b.granted(3));
  SECTION("until an order comes") {
    b.handle(GangOrdered{.tenant = TenantId{3}, .order = GangOrder{.possible = true}});
  }
  SECTION("until the job has its turns by itself") {
    b.handle(GangOrdered{.tenant = TenantId{3}, .order = std::nullopt});
  }
  CHECK((b.granted(3) || b.until_sent<Verdict>(3, 1s)));
}

TEST_CASE("A gang without a coordinator continues by itself in each phase, and obeys the next order") {
  Node b;
  const auto leave_alone = [&b] { b.handle(GangOrdered{.tenant = TenantId{2}, .order = std::nullopt}); };
  const Phase phase = GENERATE(Phase::out, Phase::entering, Phase::running);
  if (phase == Phase::running) {
    b.begin_turn();
    leave_alone();
  } else {
    b.want(2);
    if (phase == Phase::out) leave_alone();
    b.pass_by_timers(11s);
    if (phase == Phase::entering) {
      b.command(GangCommand::enter);
      leave_alone();
    }
    REQUIRE(b.phase() == Phase::entering);
    b.make_way(true);
  }
  REQUIRE(b.open(2));
  CHECK(b.holds(2));
  SECTION("its turn ends by itself") {
    b.pass_by_timers(11s);
    CHECK_FALSE(b.open(2));
    b.release(2, 60, true);
    CHECK_FALSE(b.holds(2));
  }
  SECTION("its turn ends by the order of a coordinator that knew of none") {
    b.command(GangCommand::wait);
    CHECK_FALSE(b.open(2));
    b.release(2, 60, true);
    CHECK_FALSE(b.holds(2));
  }
  SECTION("its turn goes on by order") {
    b.command(GangCommand::enter);
    CHECK(b.report().ready);
    b.command(GangCommand::run);
    CHECK(b.open(2));
  }
}

TEST_CASE("A gang that loses its coordinator while it submits once more ends its turn, and owes nothing") {
  Node b;
  b.drain_for_others();
  b.order.steps = 1;
  b.tell_gang();
  REQUIRE(b.sent<Step>(2));
  b.handle(GangOrdered{.tenant = TenantId{2}, .order = std::nullopt});
  b.release(2, 60, true);
  CHECK_FALSE(b.holds(2));
  // The coordinator sent this order before it received these reports.
  b.command(GangCommand::leave);
  CHECK(b.report().steps == 1);
  CHECK(b.report().drained);
}

TEST_CASE("A gang whose gates were not open gives way if none of its submissions would help") {
  Node b;
  b.enter_turn();
  unsigned resident = 60;
  SECTION("since its memory is not complete") {
    b.release(1, 60, true);
    b.tell(1, 60, 50);
    resident = 30;
  }
  SECTION("since another member has no place") {
    b.make_way(true);
    b.order.lacks = true;
  }
  b.order.drains = true;
  b.command(GangCommand::leave);
  b.release(2, true, b.use(60, resident));
  CHECK(b.phase() == Phase::out);
}

TEST_CASE("A complete gang whose gates were not open keeps its place while a submission may help") {
  Node b;
  b.enter_turn();
  b.make_way(true);
  b.order.drains = true;
  b.command(GangCommand::leave);
  b.release(2, 60, true);
  CHECK(b.phase() == Phase::leaving);
}

TEST_CASE("A gang that is out of contact makes room for its node's tenants once it has no work there") {
  Node b;
  enum class Loss { entering, ready, drained };
  const Loss loss = GENERATE(Loss::entering, Loss::ready, Loss::drained);
  b.order.drains = true;
  if (loss == Loss::drained)
    b.drain_for_others();
  else
    b.enter_turn();
  if (loss == Loss::entering) b.release(1, 60, true);
  if (loss == Loss::ready) b.make_way(true);
  b.order.possible = false;
  b.tell_gang();
  if (loss != Loss::drained) b.release(2, 60, true);
  CHECK(b.phase() == Phase::out);
  CHECK_FALSE(b.holds(2));
  CHECK(b.tenant(1).phase != Phase::out);
  SECTION("but its place goes to no other gang") {
    b.come_as_gang(3, 3);
    b.attach(3);
    b.grow(3, 10, 0);
    b.want(3);
    b.handle(GangOrdered{.tenant = TenantId{3}, .order = GangOrder{.possible = true, .settled = true}});
    CHECK_FALSE(b.reports.at(3).offers);
    SECTION("nor to a job that is apart") {
      b.handle(GangOrdered{.tenant = TenantId{3}, .order = std::nullopt});
      CHECK(b.tenant(3).phase == Phase::out);
    }
    SECTION("until the turn has ended") {
      b.order.possible = true;
      b.order.drains = false;
      b.command(GangCommand::wait);
      b.pass_by_timers(11s);
      CHECK(b.reports.at(3).offers);
    }
  }
  SECTION("and it has the place again by an order") {
    b.order.possible = b.order.urgent = true;
    b.command(GangCommand::enter);
    CHECK(b.phase() == Phase::entering);
  }
}

TEST_CASE("A gang that is out of contact keeps its memory beside another gang, which might take the room") {
  Node b;
  b.drain_for_others();
  b.come_as_gang(3, 3);
  b.attach(3);
  b.grow(3, 10, 0);
  b.want(3);
  GangOrder other{.possible = true, .settled = true};
  const auto tell_other = [&](GangCommand command) {
    other.command = command;
    other.seen = b.reports[3].number;
    b.handle(GangOrdered{.tenant = TenantId{3}, .order = other});
  };
  tell_other(GangCommand::enter);
  REQUIRE(b.tenant(3).phase == Phase::entering);
  b.order.possible = false;
  b.tell_gang();
  CHECK(b.phase() == Phase::leaving);
  tell_other(GangCommand::wait);
  b.release(3, 10, false);
  CHECK(b.phase() == Phase::out);
}

TEST_CASE("A gang that loses contact while it runs continues, and leaves for no other gang") {
  Node b;
  b.begin_turn();
  b.order.possible = false;
  b.tell_gang();
  b.come_as_gang(3, 3);
  b.attach(3);
  b.grow(3, 60, 0);
  b.want(3);
  b.handle(GangOrdered{.tenant = TenantId{3}, .order = GangOrder{.possible = true, .settled = true}});
  b.pass_by_timers(1min);
  CHECK(b.open(2));
  CHECK_FALSE(b.reports.at(3).offers);
}

TEST_CASE("No other gang is offered a turn while a gang drains") {
  Node b;
  b.begin_turn();
  b.come_as_gang(3, 3);
  b.attach(3);
  b.grow(3, 10, 0);
  b.want(3);
  b.handle(GangOrdered{.tenant = TenantId{3}, .order = GangOrder{.possible = true, .settled = true}});
  CHECK(b.reports.at(3).offers);
  b.command(GangCommand::leave);
  CHECK_FALSE(b.reports.at(3).offers);
  b.release(2, 60, true);
  CHECK(b.reports.at(3).offers);
}

TEST_CASE("A job whose nodes do not reach each other keeps other gangs off the node, idle or not") {
  Node b;
  const auto come_alone = [&b](std::uint64_t id) {
    b.come_as_gang(id, id);
    b.handle(GangOrdered{.tenant = TenantId{id}, .order = std::nullopt});
    b.attach(id);
    b.grow(id, 60, 0);
    b.release(id, 0, true);
  };
  b.handle(GangOrdered{.tenant = TenantId{2}, .order = std::nullopt});
  SECTION("out, and wants nothing yet: it may have a turn on another node") {
    come_alone(3);
    b.pass_by_timers(11s);
    CHECK(b.tenant(3).phase == Phase::out);
    b.handle(SessionGone{.session = SessionId{2}});
    b.want(3);
    b.pass_by_timers(1min);
    CHECK(b.tenant(3).phase != Phase::out);
  }
  SECTION("running") {
    b.want(2);
    b.pass_by_timers(11s);
    b.make_way(false);
    REQUIRE(b.open(2));
    come_alone(3);
    REQUIRE(b.open(2));
    b.say(2, Idle{.epoch = b.epoch(2), .idle = 5s});  // the job's process on the other node may be working
    b.pass_by_timers(1min);
    CHECK(b.open(2));
  }
}

TEST_CASE("A gang is offered no turn while a job whose nodes do not reach each other has it") {
  Node b;
  b.handle(GangOrdered{.tenant = TenantId{2}, .order = std::nullopt});
  b.want(2);
  b.pass_by_timers(11s);
  b.make_way(false);
  REQUIRE(b.open(2));
  b.come_as_gang(3, 3);
  b.handle(GangOrdered{.tenant = TenantId{3}, .order = GangOrder{.possible = true, .settled = true}});
  b.attach(3);
  b.grow(3, 60, 0);
  b.want(3);
  b.pass_by_timers(1min);
  CHECK_FALSE(b.reports.at(3).offers);
  CHECK(b.open(2));
  b.handle(GangOrdered{.tenant = TenantId{3},
                       .order = GangOrder{.command = GangCommand::enter, .possible = true, .settled = true}});
  CHECK_FALSE(b.open(2));  // tenant 3 has begun its turn on other nodes, and keeps its memory there
}

TEST_CASE(
    "If nodes do not reach each other, a job that has begun its turn goes before a job with a lower number") {
  Node b;
  b.handle(GangOrdered{.tenant = TenantId{2}, .order = std::nullopt});
  b.want(2);
  b.pass_by_timers(11s);
  b.make_way(true);
  REQUIRE(b.open(2));
  b.handle(SessionCame{.session = SessionId{9},
                       .tenant = TenantId{9},
                       .step = {.job = 1, .step = 0},
                       .cap = {},
                       .job = 1,
                       .hello = {}});
  b.handle(GangOrdered{.tenant = TenantId{9}, .order = std::nullopt});
  b.attach(9);
  b.grow(9, 60, 0);
  b.want(9);
  b.pass_by_timers(11s);
  REQUIRE_FALSE(b.open(2));  // tenant 1, whose job runs on this node only, has the next turn
  b.release(2, 60, true);
  b.tell(2, 60, 40);
  b.ready(1, 60);
  REQUIRE(b.open(1));
  b.pass_by_timers(11s);
  CHECK(b.tenant(2).phase == Phase::entering);
  CHECK(b.tenant(9).phase == Phase::out);
}

TEST_CASE(
    "If the nodes of several jobs do not reach each other, the job that Slurm started first goes first") {
  const bool second_is_elder = GENERATE(false, true);
  Node b;
  b.come_as_gang(3, 3);
  b.attach(3);
  b.grow(3, 60, 0);
  b.handle(GangOrdered{.tenant = TenantId{2}, .order = std::nullopt, .started = 20s});
  b.handle(GangOrdered{.tenant = TenantId{3}, .order = std::nullopt, .started = second_is_elder ? 10s : 20s});
  b.want(2);
  b.want(3);
  b.pass_by_timers(11s);
  b.make_way(true);
  CHECK(b.open(2) == !second_is_elder);
  CHECK((b.tenant(3).phase != Phase::out) == second_is_elder);
}

TEST_CASE("A job with turns of its own does not wait for a job whose place in the line is unknown") {
  Node b(10);
  b.handle(SessionGone{.session = SessionId{2}});
  b.come_as_gang(4, 2);
  b.attach(4);
  b.come_as_gang(3, 3);
  b.handle(GangOrdered{.tenant = TenantId{3}, .order = std::nullopt});
  b.attach(3);
  b.grow(3, 10, 0);
  b.want(3);
  b.pass_by_timers(1min);
  CHECK(b.tenant(3).phase != Phase::out);
  CHECK(b.tenant(2).phase == Phase::out);
}

TEST_CASE(
    "A gang that is stopped here reports that it can begin no turn, and one stopped elsewhere is offered "
    "none") {
  Node b;
  b.want(2);
  b.pass_by_timers(11s);
  REQUIRE(b.report().offers);
  SECTION("here") {
    b.handle(Suspend{.tenant = TenantId{2}, .suspended = true});
    CHECK(b.report().ends);
    CHECK_FALSE(b.report().offers);
    b.handle(Suspend{.tenant = TenantId{2}, .suspended = false});
    CHECK_FALSE(b.report().ends);
    CHECK(b.report().offers);
  }
  SECTION("elsewhere") {
    b.order.stopped = true;
    b.tell_gang();
    CHECK_FALSE(b.report().offers);
    b.order.stopped = false;
    b.tell_gang();
    CHECK(b.report().offers);
  }
}

TEST_CASE("A gang that has no process on the node any more says so") {
  Node b;
  b.begin_turn();
  b.handle(SessionGone{.session = SessionId{2}});
  CHECK_FALSE(b.report().present);
  CHECK(b.report().drained);
  CHECK(b.report().offers);
}

TEST_CASE("A member that has drained keeps its place while the gang enters for another member") {
  Node b;
  b.drain_for_others();
  b.order.urgent = true;
  b.command(GangCommand::enter);
  CHECK(b.phase() == Phase::leaving);
  CHECK(b.holds(2));
  CHECK_FALSE(b.sent<Evict>(2));
}

}  // namespace
}  // namespace sharedgpu
