// SPDX-License-Identifier: Apache-2.0
// The coordinator of a gang. The tests send it the reports of the members.
#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "arbiter/gang/coordinator.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

constexpr GangPace kPace{.step_after = 100ms, .step_pause = 2ms, .most_pause = 1s};

struct Members {
  explicit Members(std::size_t count) : coordinator(kPace, now) {
    for (unsigned member = 0; member < count; ++member)
      last.push_back(
          {.number = 1, .offers = false, .ready = false, .present = true, .wants = true, .idle = false});
  }
  void say(unsigned member) {
    ++last[member].number;
    coordinator.hear(member, last[member]);
    heard.insert(member);
    if (heard.size() == last.size() && !coordinator.gives_orders()) coordinator.begin_orders(now);
    coordinator.advance(now);
  }
  void say_all() {
    for (unsigned member = 0; member < last.size(); ++member) say(member);
  }
  template <class Change>
  void change_all(Change change) {
    for (GangReport& report : last) change(report);
    say_all();
  }
  void offer_all() {
    change_all([](GangReport& its) { its.offers = true; });
  }
  void enter_all() {
    change_all([](GangReport& its) {
      its = {.number = its.number,
             .phase = Phase::entering,
             .offers = false,
             .ready = false,
             .drained = false,
             .steps = its.steps,
             .present = true,
             .idle = false};
    });
  }
  void get_ready(unsigned member) {
    last[member].ready = true;
    say(member);
  }
  void run_all() {
    offer_all();
    enter_all();
    change_all([](GangReport& its) { its.ready = true; });
    change_all([](GangReport& its) { its.phase = Phase::running; });
  }
  void leave(unsigned member, bool drained) {
    last[member].phase = Phase::leaving;
    last[member].drained = drained;
    last[member].ends = last[member].ready = false;
    say(member);
  }
  void drain(unsigned member) {
    last[member].drained = true;
    last[member].steps = order(member).steps;
    say(member);
  }
  void pass(Nanoseconds time) {
    now += time;
    coordinator.advance(now);
  }
  GangOrder order(unsigned member = 0) const { return coordinator.order_for(member).value(); }
  GangCommand command() const { return order().command; }

  Nanoseconds now = 1000s;
  GangCoordinator coordinator;
  std::vector<GangReport> last;
  std::set<unsigned> heard;
};

TEST_CASE("A gang has no orders before all members are heard") {
  Members gang(2);
  gang.say(0);
  CHECK_FALSE(gang.coordinator.order_for(0));
  gang.say(1);
  CHECK(gang.command() == GangCommand::wait);
  CHECK(gang.order(1).seen == gang.last[1].number);
}

TEST_CASE("A turn begins when all members offer it, and gates open when all are ready") {
  Members gang(3);
  gang.say_all();
  for (unsigned member = 0; member < 3; ++member) {
    CHECK(gang.command() == GangCommand::wait);
    gang.last[member].offers = true;
    gang.say(member);
  }
  CHECK(gang.command() == GangCommand::enter);
  gang.enter_all();
  for (unsigned member = 0; member < 3; ++member) {
    CHECK(gang.command() == GangCommand::enter);
    gang.get_ready(member);
  }
  CHECK(gang.command() == GangCommand::run);
}

TEST_CASE("A member without processes delays nobody, and a gang without any process has no turn") {
  Members gang(2);
  gang.last[1] = {.number = 1};
  gang.offer_all();
  REQUIRE(gang.command() == GangCommand::enter);
  gang.last[0] = {.number = 5, .phase = Phase::running, .present = true};
  gang.say(0);
  CHECK(gang.command() == GangCommand::run);
  Members nobody(2);
  nobody.last[0] = nobody.last[1] = {.number = 1};
  nobody.say_all();
  CHECK(nobody.command() == GangCommand::wait);
}

TEST_CASE("One member ends the turn of all, and the next turn begins when all have drained") {
  Members gang(2);
  gang.run_all();
  REQUIRE(gang.command() == GangCommand::run);
  gang.last[1].ends = true;
  gang.say(1);
  REQUIRE(gang.command() == GangCommand::leave);
  gang.leave(0, false);
  gang.leave(1, false);
  gang.drain(0);
  CHECK(gang.command() == GangCommand::leave);
  const Nanoseconds before = gang.order().since;
  gang.now += 1s;
  gang.drain(1);
  CHECK(gang.command() == GangCommand::wait);
  CHECK(gang.order().since > before);
}

TEST_CASE("A turn that cannot begin on one node begins on none") {
  Members gang(2);
  gang.offer_all();
  gang.enter_all();
  gang.get_ready(0);
  gang.last[1].ends = true;
  gang.say(1);
  CHECK(gang.command() == GangCommand::leave);
}

TEST_CASE("Members that have drained submit once if other members have not drained") {
  Members gang(3);
  gang.run_all();
  gang.last[0].ends = true;
  gang.say(0);
  gang.leave(0, true);
  gang.leave(1, true);
  gang.leave(2, false);
  CHECK(gang.order(0).steps == 0);
  gang.pass(100ms);
  CHECK(gang.order(0).steps == 1);
  CHECK(gang.order(1).steps == 1);
  CHECK(gang.order(2).steps == 0);
  SECTION("and are drained again once they say so, having submitted") {
    gang.drain(2);
    CHECK(gang.command() == GangCommand::leave);
    gang.drain(0);
    CHECK(gang.command() == GangCommand::leave);
    gang.drain(1);
    CHECK(gang.command() == GangCommand::wait);
  }
  SECTION("again and again, and more rarely where it takes long") {
    gang.pass(1ms);
    gang.drain(1);
    gang.pass(499ms);
    CHECK(gang.order(1).steps > 1);
    gang.drain(0);
    gang.pass(500ms);
    CHECK(gang.order(0).steps == 1);
    gang.pass(1s);
    CHECK(gang.order(0).steps == 2);
  }
}

TEST_CASE("A gang that is stopped on one node begins no turn until it is resumed there") {
  Members gang(2);
  gang.offer_all();
  REQUIRE(gang.command() == GangCommand::enter);
  Members stopped(2);
  stopped.say_all();
  stopped.last[0].ends = true;
  stopped.say(0);
  CHECK(stopped.order(1).stopped);
  CHECK(stopped.order(1).possible);
  stopped.last[0].ends = false;
  stopped.say(0);
  CHECK_FALSE(stopped.order(1).stopped);
}

// The turn of one member ends before any memory is restored, while the order is on its way to the other
// member.
TEST_CASE("A member that is out again is asked for no submission") {
  Members gang(2);
  gang.offer_all();
  gang.enter_all();
  gang.last[0] = {.number = gang.last[0].number,
                  .phase = Phase::entering,
                  .ends = true,
                  .drained = false,
                  .present = true};
  gang.say(0);
  REQUIRE(gang.command() == GangCommand::leave);
  gang.last[0] = {.number = gang.last[0].number, .present = true};
  gang.say(0);
  gang.pass(1s);
  CHECK(gang.order(0).steps == 0);
  gang.leave(1, true);
  CHECK(gang.command() == GangCommand::wait);
}

TEST_CASE("A member that is out of contact begins no turn, and ends none that has begun") {
  Members gang(2);
  gang.say_all();
  SECTION("none begins") {
    gang.last[0].offers = true;
    gang.say(0);
    gang.last[1].offers = true;
    gang.coordinator.hear(1, gang.last[1]);
    gang.coordinator.lose(1);
    gang.pass(0s);
    CHECK(gang.command() == GangCommand::wait);
    CHECK_FALSE(gang.order().possible);
    gang.say(1);
    CHECK(gang.command() == GangCommand::enter);
  }
  SECTION("one that was about to begin does not") {
    gang.offer_all();
    gang.enter_all();
    gang.coordinator.lose(1);
    gang.pass(0s);
    REQUIRE(gang.command() == GangCommand::leave);
    gang.leave(0, true);
    CHECK(gang.command() == GangCommand::wait);
  }
  SECTION("one that has begun goes on") {
    gang.run_all();
    gang.coordinator.lose(1);
    gang.last[0].ends = true;
    gang.say(0);
    CHECK(gang.command() == GangCommand::run);
    gang.say(1);
    CHECK(gang.command() == GangCommand::leave);
  }
}

TEST_CASE("A member that contradicts itself does not make the coordinator run without a pause") {
  Members gang(2);
  for (unsigned bits = 0; bits < 1024; ++bits) {
    const auto flag = [bits](unsigned place) { return (bits >> place & 1) != 0; };
    gang.last[1] = {.number = gang.last[1].number,
                    .phase = static_cast<Phase>(bits & 3),
                    .offers = flag(2),
                    .ends = flag(3),
                    .ready = flag(4),
                    .drained = flag(5),
                    .present = flag(6),
                    .wants = flag(7)};
    gang.last[0].offers = flag(8);
    gang.last[0].present = flag(9);
    gang.say_all();
    gang.pass(1s);
    REQUIRE((!gang.coordinator.wake() || *gang.coordinator.wake() > gang.now));
  }
}

TEST_CASE("A late member gets its place in the turn") {
  Members gang(1);
  gang.run_all();
  REQUIRE(gang.command() == GangCommand::run);
  gang.last.push_back({.number = 1, .offers = false, .ready = false, .present = true});
  gang.say(1);
  CHECK(gang.order(1).command == GangCommand::run);
}

TEST_CASE("Members that had independent turns continue them, or end them together") {
  Members gang(2);
  gang.run_all();
  gang.coordinator.set_apart(true, gang.now);
  gang.pass(0s);
  CHECK(gang.order().apart);
  SECTION("both run") { CHECK(gang.command() == GangCommand::run); }
  SECTION("one has left") {
    gang.last[1] = {.number = 9, .offers = false, .ready = false, .present = true};
    gang.say(1);
  }
  SECTION("one drains") { gang.leave(1, false); }
  const bool drains = gang.last[1].phase == Phase::leaving;
  gang.coordinator.set_apart(false, gang.now);
  gang.pass(0s);
  CHECK_FALSE(gang.order().apart);
  if (drains)
    CHECK(gang.command() == GangCommand::leave);
  else
    CHECK(gang.command() == (gang.last[1].ready ? GangCommand::run : GangCommand::enter));
}

TEST_CASE("A member ends an independent turn that no other member knows") {
  Members gang(2);
  gang.say_all();
  REQUIRE(gang.command() == GangCommand::wait);
  gang.last[1] = {.number = 9, .phase = Phase::running, .drained = false, .present = true};
  gang.say(1);
  CHECK(gang.command() == GangCommand::leave);
  gang.leave(1, false);
  gang.pass(100ms);
  CHECK(gang.order(0).urgent);  // the work of member 1 may wait for member 0
}

TEST_CASE("The coordinator waits for a member whose gate may have opened without a report") {
  Members gang(2);
  gang.offer_all();
  gang.enter_all();
  gang.get_ready(0);
  gang.get_ready(1);
  REQUIRE(gang.command() == GangCommand::run);
  gang.last[0].phase = Phase::running;
  gang.last[0].ends = true;
  gang.say(0);
  REQUIRE(gang.command() == GangCommand::leave);
  gang.coordinator.lose(1);
  gang.leave(0, true);
  CHECK(gang.command() == GangCommand::leave);
  gang.leave(1, true);
  CHECK(gang.command() == GangCommand::wait);
}

TEST_CASE("Without contact to a member that had no processes no turn begins, and one that has begun ends") {
  Members gang(2);
  gang.last[1] = {.number = 1};
  gang.say(1);
  gang.last[0].offers = true;
  gang.say(0);
  REQUIRE(gang.command() == GangCommand::enter);
  gang.last[0].phase = Phase::entering;
  gang.last[0].drained = false;
  SECTION("as it enters") { gang.say(0); }
  SECTION("as it runs") {
    gang.get_ready(0);
    REQUIRE(gang.command() == GangCommand::run);
    gang.last[0].phase = Phase::running;
    gang.say(0);
  }
  gang.coordinator.lose(1);
  gang.pass(0s);
  CHECK(gang.command() == GangCommand::leave);
  gang.leave(0, true);
  CHECK(gang.command() == GangCommand::wait);
  CHECK_FALSE(gang.order().possible);
}

TEST_CASE("A restarted coordinator continues with the state that the members report") {
  Members gang(2);
  SECTION("a turn") {
    for (GangReport& report : gang.last) report = {.number = 1, .phase = Phase::running, .present = true};
    gang.say_all();
    CHECK(gang.command() == GangCommand::run);
  }
  SECTION("a turn that has opened on one node only") {
    gang.last[0] = {.number = 1, .phase = Phase::running, .present = true};
    gang.last[1] = {.number = 1, .phase = Phase::entering, .offers = false, .ready = false, .present = true};
    gang.say_all();
    CHECK(gang.command() == GangCommand::enter);
    gang.get_ready(1);
    CHECK(gang.command() == GangCommand::run);
  }
  SECTION("the end of a turn, with the steps that there were") {
    gang.last[0] = {.number = 1, .phase = Phase::leaving, .drained = false, .steps = 7, .present = true};
    gang.last[1] = {.number = 1, .phase = Phase::running, .drained = false, .present = true};
    gang.say_all();
    CHECK(gang.command() == GangCommand::leave);
    CHECK(gang.order(0).steps == 7);
  }
}

// A gang of three members. Member 2 has come late and cannot enter the running set of its node. Member 1 has
// drained, and member 0 cannot drain.
struct WithoutPlace : Members {
  WithoutPlace() : Members(3) {
    run_all();
    last[2] = {.number = 9, .phase = Phase::out, .offers = false, .ready = false, .present = true};
    say(2);
    last[0].ends = true;
    say(0);
    leave(0, false);
    leave(1, true);
  }
  // Waits until the order is `enter` again, and lets member 2 fail to enter. Returns the time waited.
  Nanoseconds try_once() {
    const Nanoseconds since = now;
    while (command() == GangCommand::leave) pass(1ms);
    const Nanoseconds took = now - since;
    last[2] = {
        .number = last[2].number, .phase = Phase::entering, .ends = true, .ready = false, .present = true};
    say(2);
    last[2] = {
        .number = last[2].number, .phase = Phase::out, .offers = false, .ready = false, .present = true};
    say(2);
    return took;
  }
};

TEST_CASE("While a member has no place in a turn, no member submits work that might wait for it") {
  WithoutPlace gang;
  REQUIRE(gang.command() == GangCommand::leave);
  CHECK(gang.order(1).lacks);
  gang.pass(99ms);
  CHECK(gang.order(1).steps == 0);
  gang.pass(1ms);
  CHECK(gang.command() == GangCommand::enter);
  CHECK(gang.order(2).urgent);
  CHECK_FALSE(gang.order(1).lacks);
}

TEST_CASE("A member that finds no place tries again, at growing intervals") {
  WithoutPlace gang;
  CHECK(gang.try_once() == 100ms);
  CHECK(gang.try_once() == 200ms);
  CHECK(gang.try_once() == 400ms);
  for (int i = 0; i < 5; ++i) gang.try_once();
  CHECK(gang.try_once() == 10s);
}

TEST_CASE("A process that has come late is let in if another process cannot drain without it") {
  Members gang(2);
  gang.run_all();
  gang.last[1] = {.number = 9, .phase = Phase::out, .offers = false, .ready = false, .present = true};
  gang.say(1);
  gang.last[0].ends = true;
  gang.say(0);
  gang.leave(0, false);
  REQUIRE(gang.command() == GangCommand::leave);
  gang.pass(100ms);
  REQUIRE(gang.command() == GangCommand::enter);
  CHECK(gang.order(1).urgent);
  gang.last[1].phase = Phase::entering;
  gang.get_ready(1);
  CHECK(gang.command() == GangCommand::leave);
  gang.leave(1, true);
  gang.pass(100ms);
  CHECK(gang.order(1).steps == 1);
}

}  // namespace
}  // namespace sharedgpu
