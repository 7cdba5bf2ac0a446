// SPDX-License-Identifier: Apache-2.0
// Members of a gang and its coordinator, over a network that loses what the test says.
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <set>

#include "arbiter/gang/desk.h"
#include "arbiter/gang/members.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;
using Contact = GangMembers::Contact;

constexpr TenantId kTenant{3};
constexpr GangTimes kTimes;

// Two nodes, "a" and "b", with a tenant of job 5 each; "a" coordinates.
class Network {
 public:
  Network() {
    boot("a");
    boot("b");
  }
  struct Node {
    std::optional<GangMembers> members;
    std::optional<GangDesk> desk;
    GangReport report{.offers = false, .ready = false, .present = true, .wants = true};
    std::vector<std::optional<GangOrder>> told;  // the core
  };
  void boot(const std::string& name) {
    ++life_;
    nodes[name].members.emplace(life_, kTimes);
    nodes[name].desk.emplace(life_, kTimes, GangPace{}, now, 0ns);
  }
  void say(const std::string& name) {
    Node& node = nodes[name];
    ++node.report.number;
    node.members->report(kTenant,
                         {.number = 5, .run = run, .nodes = 2, .coordinator = "a", .is_new = new_job},
                         node.report, now);
    carry();
  }
  void say_all() {
    say("a");
    say("b");
  }
  void pass(Nanoseconds time) {
    const Nanoseconds end = now + time;
    for (;;) {
      Nanoseconds next = end;
      for (auto& [name, node] : nodes) {
        for (const auto wake : {node.members->wake(), node.desk->wake()})
          if (wake && *wake < next) next = *wake;
      }
      now = std::max(now, next);
      for (auto& [name, node] : nodes) {
        node.members->advance(now);
        node.desk->advance(now);
      }
      carry();
      if (now >= end) return;
    }
  }
  const GangMembers::Gang& gang(const std::string& name) { return *nodes[name].members->find(kTenant); }
  Contact contact(const std::string& name) { return gang(name).contact; }
  GangOrder order(const std::string& name) { return gang(name).order.value(); }

  Nanoseconds now = 1000s;
  std::map<std::string, Node> nodes;
  std::set<std::string> cut;  // nodes that nothing comes to or from
  unsigned letters = 0;
  bool new_job = false;
  std::uint64_t run = 0;

 private:
  void carry() {
    bool moved = true;
    while (std::exchange(moved, false))
      for (auto& [name, node] : nodes) {
        for (const GangMembers::Sent& sent : node.members->take_letters()) {
          ++letters;
          moved = true;
          if (goes(name, sent.node)) nodes[sent.node].desk->hear(name, sent.letter, now);
        }
        for (const GangDesk::Sent& sent : node.desk->take_letters()) {
          ++letters;
          moved = true;
          if (goes(name, sent.address)) nodes[sent.address].members->hear(sent.letter, now);
        }
        for (const GangOrdered& order : node.members->take_orders()) node.told.push_back(order.order);
      }
  }
  bool goes(const std::string& from, const std::string& to) const {
    return from == to || (cut.count(from) == 0 && cut.count(to) == 0);
  }

  std::uint64_t life_ = 100;
};

TEST_CASE("Members are in contact at once, and a quiet gang costs each node a few letters a second") {
  Network net;
  net.say_all();
  CHECK(net.contact("a") == Contact::held);
  CHECK(net.contact("b") == Contact::held);
  CHECK(net.order("b").possible);
  net.pass(2s);
  net.letters = 0;
  net.pass(60s);
  CHECK(net.letters <= 4 * 61);
  CHECK(net.letters >= 4 * 59);
}

TEST_CASE("A report that is lost is repeated soon, and its answer as soon") {
  Network net;
  net.say_all();
  net.cut = {"b"};
  net.nodes["b"].report.offers = true;
  net.say("b");
  net.nodes["a"].report.offers = true;
  net.say("a");
  CHECK(net.order("a").command == GangCommand::wait);
  net.cut = {};
  net.pass(100ms);
  CHECK(net.order("a").command == GangCommand::enter);
  CHECK(net.order("b").command == GangCommand::enter);
}

TEST_CASE("A gang that loses a node begins no turn, and goes on when it is back") {
  Network net;
  net.say_all();
  net.cut = {"b"};
  net.pass(6s);
  CHECK(net.contact("b") == Contact::lost);
  CHECK(net.contact("a") == Contact::held);
  CHECK_FALSE(net.order("a").possible);
  CHECK_FALSE(net.nodes["b"].told.back()->possible);
  net.cut = {};
  net.pass(1s);
  CHECK(net.contact("b") == Contact::held);
  CHECK(net.order("a").possible);
  CHECK(net.nodes["b"].told.back()->possible);
}

TEST_CASE("Nodes that do not reach each other for long go on by themselves until they do") {
  Network net;
  net.say_all();
  net.cut = {"b"};
  net.pass(kTimes.gone - 1s);
  CHECK(net.contact("b") == Contact::lost);
  net.pass(3s);
  CHECK(net.contact("b") == Contact::given_up);
  CHECK(net.contact("a") == Contact::given_up);
  CHECK_FALSE(net.nodes["a"].told.back());
  CHECK_FALSE(net.nodes["b"].told.back());
  // The core has begun anew with the tenant: it is told again.
  const std::size_t told = net.nodes["b"].told.size();
  net.say("b");
  REQUIRE(net.nodes["b"].told.size() == told + 1);
  CHECK_FALSE(net.nodes["b"].told.back());
  net.cut = {};
  net.pass(1s);
  CHECK(net.contact("a") == Contact::held);
  CHECK(net.contact("b") == Contact::held);
  CHECK(net.nodes["b"].told.back());
}

TEST_CASE("A coordinator that is never heard is given up soon") {
  Network net;
  net.cut = {"b"};
  net.say("b");
  CHECK(net.contact("b") == Contact::sought);
  net.pass(kTimes.never - 1s);
  CHECK(net.nodes["b"].told.empty());
  net.pass(1s);
  CHECK(net.contact("b") == Contact::given_up);
  REQUIRE(net.nodes["b"].told.size() == 1);
  CHECK_FALSE(net.nodes["b"].told.back());
}

TEST_CASE("A coordinator that begins anew gives orders when it has heard all, or after a while") {
  Network net;
  net.now = 2000s;  // long after the first start
  net.say_all();
  net.boot("a");
  net.say("a");
  CHECK_FALSE(net.gang("a").order);
  SECTION("all") {
    net.pass(1s);
    CHECK(net.gang("a").order);
  }
  SECTION("after a while") {
    net.cut = {"b"};
    net.pass(kTimes.hearing - 1s);
    CHECK_FALSE(net.gang("a").order);
    CHECK(net.contact("a") == Contact::sought);
    net.pass(2s);
    CHECK(net.contact("a") == Contact::held);
  }
}

TEST_CASE("A gang that is new waits for its other nodes, and not for long") {
  Network net;
  net.new_job = true;
  for (auto& [name, node] : net.nodes) node.report.offers = true;
  net.cut = {"b"};
  net.say("a");
  CHECK_FALSE(net.gang("a").order);
  GangDesk& desk = *net.nodes["a"].desk;
  CHECK(desk.take_parts().empty());
  SECTION("one that comes has the first turn, too") {
    net.pass(kTimes.gathering - 100ms);
    CHECK_FALSE(net.gang("a").order);
    net.cut = {};
    net.say("b");
    CHECK(net.order("a").command == GangCommand::enter);
    CHECK(net.order("b").command == GangCommand::enter);
    net.pass(10s);
    CHECK(desk.take_parts().empty());
    return;
  }
  net.pass(kTimes.gathering);
  const auto parts = desk.take_parts();
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].job == 5);
  CHECK(parts[0].heard == 1);
  CHECK(parts[0].nodes == 2);
  net.pass(1min);
  CHECK(desk.take_parts().empty());
  CHECK(net.contact("a") == Contact::held);
  CHECK(net.order("a").possible);
  SECTION("but its next coordinator does for longer") {
    net.boot("a");
    net.new_job = false;
    net.say("a");
    net.pass(kTimes.hearing - 1s);
    CHECK(net.contact("a") == Contact::sought);
  }
  SECTION("but its next coordinator does for longer, where a new member is heard first") {
    net.boot("a");
    net.say("a");
    net.new_job = false;
    net.say("a");
    net.pass(kTimes.hearing - 1s);
    CHECK(net.contact("a") == Contact::sought);
  }
}

TEST_CASE("A job that is requeued waits for no node of its run before") {
  Network net;
  net.say_all();
  net.cut = {"b"};
  net.pass(6s);
  REQUIRE_FALSE(net.order("a").possible);
  net.run = 1;
  net.new_job = true;
  net.say("a");
  net.pass(kTimes.gathering);
  CHECK(net.order("a").possible);
  net.pass(2 * kTimes.gone);
  CHECK(net.contact("a") == Contact::held);
}

TEST_CASE("A member whose letters cannot go out yet is not given up for that") {
  GangMembers members(7, kTimes);
  Nanoseconds now = 5s;
  members.report(kTenant, {.number = 5, .nodes = 2, .coordinator = "a"}, {.present = true}, now);
  for (; now < 30s; now += 1s) {
    for (const GangMembers::Sent& sent : members.take_letters()) members.excuse(sent.letter, now);
    members.advance(now);
  }
  CHECK(members.find(kTenant)->contact == Contact::sought);
  members.advance(now + kTimes.never);
  CHECK(members.find(kTenant)->contact == Contact::given_up);
}

TEST_CASE("A job that has ended on a node keeps nobody waiting, and is forgotten") {
  Network net;
  net.say_all();
  net.nodes["b"].report = {.number = net.nodes["b"].report.number};
  net.say("b");
  net.pass(kTimes.silence);
  CHECK(net.nodes["b"].members->find(kTenant) == nullptr);
  CHECK(net.nodes["b"].members->wake() == std::nullopt);
  net.pass(2 * kTimes.silence);
  CHECK(net.order("a").possible);
  net.nodes["a"].report = {.number = net.nodes["a"].report.number};
  net.say("a");
  net.pass(3 * kTimes.silence);
  CHECK(net.nodes["a"].members->wake() == std::nullopt);
  CHECK(net.nodes["a"].desk->wake() == std::nullopt);
}

TEST_CASE("Orders for an earlier life of the arbiter, and of jobs that are not here, are dropped") {
  Network net;
  net.say_all();
  const std::size_t told = net.nodes["b"].told.size();
  GangMembers& members = *net.nodes["b"].members;
  members.hear(
      {.job = 5, .life = 1, .number = 1, .reader = 1, .what = GangOrder{.command = GangCommand::run}},
      net.now);
  members.hear({.job = 6, .life = 1, .number = 1, .reader = 102, .what = GangOrder{}}, net.now);
  CHECK(members.take_orders().empty());
  CHECK(net.nodes["b"].told.size() == told);
  CHECK(net.order("b").command == GangCommand::wait);
}

TEST_CASE("An arbiter that writes from another address than before is the same member") {
  GangDesk desk(9, kTimes, GangPace{}, 0ns, 0ns);
  const auto write = [&desk](const char* address, std::uint64_t life, std::uint64_t second) {
    desk.hear(address,
              {.job = 5,
               .life = life,
               .number = second,
               .nodes = 2,
               .is_new = true,
               .what = GangReport{.number = second, .present = true, .wants = true, .idle = false}},
              std::chrono::seconds(second));
    desk.advance(std::chrono::seconds(second));
  };
  for (std::uint64_t second = 1; second < 30; ++second) {
    write("10.0.0.1", 1, second);
    write(second < 10 ? "10.0.0.2" : "fd00::2", 2, second);
  }
  const std::vector<GangDesk::Sent> sent = desk.take_letters();
  REQUIRE_FALSE(sent.empty());
  CHECK(sent.back().address == "fd00::2");
  CHECK(std::get<GangOrder>(sent.back().letter.what).possible);
}

}  // namespace
}  // namespace sharedgpu
