// SPDX-License-Identifier: Apache-2.0
// Members of a gang and its coordinator, over a network that loses the messages of chosen nodes.
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
    std::optional<HeardNodes> heard;
    std::optional<GangMembers> members;
    std::optional<GangDesk> desk;
    GangReport report{.offers = false, .ready = false, .present = true, .wants = true};
    std::vector<std::optional<GangOrder>> told;  // the orders that the core has received
    bool all_known = true;
  };
  void boot(const std::string& name) {
    ++life_;
    Node& node = nodes[name];
    if (!node.heard) node.heard.emplace(kTimes.recent);  // kept over a restart, as in the arbiter's file
    node.members.emplace(name, life_, kTimes, *node.heard);
    node.desk.emplace(name, life_, kTimes, GangPace{}, 0ns, *node.heard);
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
  std::set<std::string> cut;  // nodes that send and receive no messages
  unsigned messages = 0;
  unsigned listings = 0;  // number of queries to Slurm for the nodes of a job
  bool slurm_answers = true;
  std::vector<StartedJob> started = {{.number = 5, .started = 100s}};  // the jobs that Slurm lists for each
                                                                       // node
  unsigned lines = 0;                                                  // number of queries to Slurm for this
                                                                       // list
  std::vector<GangDesk::Silent> silent;
  std::vector<GangDesk::Apart> aparts;
  bool new_job = false;
  std::uint64_t run = 0;

 private:
  void carry() {
    bool moved = true;
    while (std::exchange(moved, false))
      for (auto& [name, node] : nodes) {
        if (const auto asked = node.members->take_line_question()) {
          moved = true;
          ++lines;
          if (slurm_answers) node.members->list(started, *asked);
          node.members->advance(now);
        }
        for (const GangMembers::Sent& sent : node.members->take_messages()) {
          ++messages;
          moved = true;
          carry(name, sent.node, sent.message);
        }
        for (const GangDesk::Run& asked : node.desk->take_unlisted()) {
          moved = true;
          ++listings;
          if (slurm_answers) node.desk->list(asked, {{"a", "a"}, {"b", "b"}}, now);
        }
        for (const GangDesk::Sent& sent : node.desk->take_messages()) {
          ++messages;
          moved = true;
          carry(name, sent.address, sent.message);
        }
        for (const GangDesk::Silent& its : node.desk->take_silent()) silent.push_back(its);
        for (const GangDesk::Apart& apart : node.desk->take_apart()) aparts.push_back(apart);
        for (const GangOrdered& order : node.members->take_orders()) node.told.push_back(order.order);
      }
  }
  void carry(const std::string& from, const std::string& to, const GangMessage& message) {
    if (!goes(from, to)) return;
    if (std::holds_alternative<GangReport>(message.what))
      nodes[to].desk->hear(from, message, now);
    else
      nodes[to].members->hear(message, nodes[to].all_known, now);
  }
  bool goes(const std::string& from, const std::string& to) const {
    return from == to || (cut.count(from) == 0 && cut.count(to) == 0);
  }

  std::uint64_t life_ = 100;
};

TEST_CASE("Members are in contact at once, and a quiet gang costs each node a few messages a second") {
  Network net;
  net.say_all();
  CHECK(net.contact("a") == Contact::held);
  CHECK(net.contact("b") == Contact::held);
  CHECK(net.order("b").possible);
  net.pass(2s);
  net.messages = 0;
  net.pass(60s);
  CHECK(net.messages <= 4 * 61);
  CHECK(net.messages >= 4 * 59);
}

TEST_CASE("A lost report is repeated soon, and so is a lost answer") {
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

TEST_CASE("Nodes that do not reach each other for long have independent turns until they do") {
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
  // If the core has forgotten the tenant and then reports about it again, the core gets the order again.
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

TEST_CASE("A coordinator that was never heard is soon given up") {
  Network net;
  net.cut = {"b"};
  SECTION("where the gang is new") { net.new_job = true; }
  SECTION("where an earlier arbiter knew the job, too") {}
  SECTION("and not so soon where an earlier arbiter has heard it") {
    net.nodes["b"].heard->hear("a", net.now);
    net.boot("b");
    net.say("b");
    net.pass(kTimes.gone - 1s);
    CHECK(net.contact("b") == Contact::sought);
    net.pass(1s);
    CHECK(net.contact("b") == Contact::given_up);
    return;
  }
  net.say("b");
  CHECK(net.contact("b") == Contact::sought);
  net.pass(kTimes.never - 1s);
  CHECK(net.nodes["b"].told.empty());
  net.pass(1s);
  CHECK(net.contact("b") == Contact::given_up);
  REQUIRE(net.nodes["b"].told.size() == 1);
  CHECK_FALSE(net.nodes["b"].told.back());
}

TEST_CASE("A restarted coordinator gives orders when it has heard all members") {
  Network net;
  net.say_all();
  net.boot("a");
  net.say("a");
  CHECK_FALSE(net.gang("a").order);
  SECTION("as soon as they are") {
    net.pass(1s);
    CHECK(net.gang("a").order);
    CHECK(net.listings == 0);
  }
  SECTION("which may come back yet") {
    net.cut = {"b"};
    net.pass(kTimes.gone - 1s);
    CHECK_FALSE(net.gang("a").order);
    CHECK(net.contact("a") == Contact::sought);
    net.cut = {};
    net.pass(1s);
    CHECK(net.contact("a") == Contact::held);
    CHECK(net.aparts.empty());
  }
  SECTION("or given them up") {
    net.cut = {"b"};
    net.pass(kTimes.gone + 2s);
    CHECK(net.contact("a") == Contact::given_up);
    CHECK(net.contact("b") == Contact::given_up);
    REQUIRE(net.aparts.size() == 1);
  }
}

TEST_CASE("A new gang waits for processes on its other nodes, but not for long") {
  Network net;
  net.new_job = true;
  for (auto& [name, node] : net.nodes) node.report.offers = true;
  net.say("a");
  CHECK_FALSE(net.gang("a").order);
  net.pass(kTimes.gathering - 100ms);
  CHECK_FALSE(net.gang("a").order);
  SECTION("one that comes has the first turn, too") {
    net.say("b");
    CHECK(net.order("a").command == GangCommand::enter);
    CHECK(net.order("b").command == GangCommand::enter);
  }
  SECTION("one that comes later comes to a turn that has begun") {
    net.pass(100ms);
    CHECK(net.order("a").command == GangCommand::enter);
    net.say("b");
    CHECK(net.order("b").command == GangCommand::enter);
  }
  SECTION("one that never comes is asked each second") {
    net.pass(100ms);
    net.messages = 0;
    net.pass(60s);
    CHECK(net.order("a").possible);
    CHECK(net.messages <= 4 * 61);
    CHECK(net.listings == 1);
  }
  CHECK(net.aparts.empty());
}

TEST_CASE(
    "A node whose arbiter cannot know yet whether a process comes back does not say that there is none") {
  Network net;
  net.new_job = true;
  net.nodes["b"].all_known = false;
  net.say("a");
  net.pass(5s);
  CHECK_FALSE(net.gang("a").order);
  net.nodes["b"].all_known = true;
  net.pass(1s + kTimes.pause);
  CHECK(net.gang("a").order);
}

TEST_CASE("A new gang is apart on all of its nodes if one of them does not answer") {
  Network net;
  net.new_job = true;
  Nanoseconds patience = kTimes.never;
  SECTION("though Slurm names it") {}
  SECTION("and Slurm does not name it for minutes") {
    net.slurm_answers = false;
    patience = kTimes.unlisted;
  }
  net.cut = {"b"};
  net.say_all();
  net.pass(patience - 1s);
  CHECK_FALSE(net.gang("a").order);
  CHECK(net.contact("a") == Contact::sought);
  net.pass(3s);
  CHECK(net.contact("a") == Contact::given_up);
  CHECK(net.contact("b") == Contact::given_up);
  REQUIRE(net.aparts.size() == 1);
  CHECK(net.aparts[0].job == 5);
  CHECK(net.aparts[0].answer == 1);
  CHECK(net.aparts[0].nodes == 2);
  CHECK(net.aparts[0].silent ==
        (net.slurm_answers ? std::vector<std::string>{"b"} : std::vector<std::string>{}));
  net.slurm_answers = true;
  net.pass(2min);
  CHECK(net.contact("a") == Contact::given_up);
  net.cut = {};
  net.pass(1s + kTimes.pause);
  CHECK(net.contact("a") == Contact::held);
  CHECK(net.contact("b") == Contact::held);
  CHECK(net.order("a").possible);
}

TEST_CASE(
    "A node that was heard about another job is waited for as long as one that was heard about this job") {
  Network net;
  net.say_all();
  net.pass(kTimes.gathering);
  CHECK(net.contact("b") == Contact::held);
  net.cut = {"b"};
  for (const char* name : {"a", "b"}) net.nodes[name].report.present = false;
  net.say_all();
  net.pass(2 * kTimes.silence);  // the job is forgotten on both nodes
  net.run = 1;
  for (const char* name : {"a", "b"}) net.nodes[name].report.present = true;
  net.say_all();
  net.pass(kTimes.gone - 1s);
  CHECK(net.contact("b") == Contact::sought);
  CHECK(net.aparts.empty());
  net.pass(2s);
  CHECK(net.contact("b") == Contact::given_up);
  CHECK(net.aparts.size() == 1);
}

TEST_CASE("Nodes count as heard for a while after their last message") {
  HeardNodes heard(10s);
  heard.hear("a", 5s);
  CHECK(heard.has("a", 4s));
  CHECK(heard.has("a", 14s));
  CHECK(!heard.has("a", 15s));
  CHECK(!heard.has("b", 5s));
  for (std::size_t i = 1; i < HeardNodes::kMost; ++i) heard.hear(std::to_string(i), 7s);
  heard.hear("b", 8s);
  CHECK(!heard.has("b", 8s));  // the list of nodes whose messages have come is full
  heard.hear("b", 15s);        // "a" is forgotten
  CHECK(heard.has("b", 15s));
}

TEST_CASE("The nodes that were heard are kept for the next arbiter on the same boot") {
  HeardNodes before(10s), after(10s);
  CHECK_FALSE(before.take_news());
  before.hear("a", 5s);
  CHECK(before.take_news());
  before.hear("a", 7s);
  CHECK_FALSE(before.take_news());
  before.hear("n-2.site", 4s);
  CHECK(before.text("b7", 8s) == "b7\na 7\nn-2.site 4\n");
  after.hear("n-2.site", 9s);
  after.restore(before.text("b7", 8s), "b7", 9s);
  CHECK(after.has("a", 16s));
  CHECK_FALSE(after.has("a", 17s));
  CHECK(after.has("n-2.site", 18s));  // a message of n-2.site came after the text was written
  SECTION("a node whose last message was long ago is forgotten, and is news when it is heard again") {
    CHECK(before.text("b7", 14s) == "b7\na 7\n");
    after.restore("b7\nc 1\n", "b7", 11s);
    CHECK_FALSE(after.has("c", 10s));
    before.take_news();
    before.hear("a", 16s);
    CHECK_FALSE(before.take_news());
    before.hear("a", 26s);
    CHECK(before.take_news());
  }
  SECTION("a text of another boot, or of an unknown one, is ignored") {
    after.restore("b8\nc 9\n", "b7", 9s);
    after.restore("\nc 9\n", "", 9s);
    CHECK_FALSE(after.has("c", 9s));
  }
  SECTION("a time in the future counts as now") {
    after.restore("b7\nc 2000", "b7", 9s);
    CHECK(after.has("c", 18s));
    CHECK_FALSE(after.has("c", 19s));
  }
  SECTION("no more nodes are taken than are remembered") {
    std::string many = "b7\n";
    for (std::size_t i = 0; i < HeardNodes::kMost; ++i) many += std::to_string(i) + " 8\n";
    after.restore(many, "b7", 9s);
    CHECK(after.has("0", 9s));
    CHECK_FALSE(after.has(std::to_string(HeardNodes::kMost - 1), 9s));
  }
  SECTION("lines that are damaged are ignored") {
    after.restore("b7\nd\n d 7\ne \nf 1x\ng -1\nh 99999999999\n\ni 6 \n" + std::string(200, 'j') + " 7\nk 6",
                  "b7", 9s);
    for (const char* node : {"", "d", "e", "f", "g", "h", "i"}) CHECK_FALSE(after.has(node, 9s));
    CHECK_FALSE(after.has(std::string(200, 'j'), 9s));
    CHECK(after.has("k", 9s));
  }
}

TEST_CASE("A gang that is apart stays so until all of its nodes are in contact") {
  HeardNodes heard(kTimes.recent);
  GangDesk desk("a", 7, kTimes, GangPace{}, 0s, heard);
  std::map<std::string, GangMembers> members;
  for (const char* name : {"a", "b", "c"}) members.emplace(name, GangMembers(name, 7, kTimes, heard));
  std::uint64_t number = 0;
  const auto pass = [&](Nanoseconds& now, Nanoseconds time, const std::set<std::string>& reach) {
    std::optional<GangOrder> order;
    for (const Nanoseconds end = now + time; now < end; now += 100ms) {
      for (auto& [name, node] : members) {
        node.report(kTenant, {.number = 5, .nodes = 3, .coordinator = "a", .is_new = true},
                    {.number = ++number, .present = true}, now);
        for (const GangMembers::Sent& sent : node.take_messages())
          if (reach.count(name) > 0) desk.hear(name, sent.message, now);
      }
      desk.advance(now);
      for (const GangDesk::Run& run : desk.take_unlisted())
        desk.list(run, {{"a", "a"}, {"b", "b"}, {"c", "c"}}, now);
      for (const GangDesk::Sent& sent : desk.take_messages())
        if (const auto* its = std::get_if<GangOrder>(&sent.message.what)) order = *its;
    }
    return order;
  };
  Nanoseconds now = 10s;
  pass(now, 1s, {"a", "b"});
  REQUIRE(pass(now, kTimes.never + 2s, {"a", "b"})->apart);  // no message of "c" has ever come
  CHECK(pass(now, 10s, {"a"})->apart);                       // "b" falls silent
  CHECK(pass(now, 10s, {"a", "c"})->apart);
  const auto order = pass(now, 2s, {"a", "b", "c"});
  CHECK_FALSE(order->apart);
  CHECK(order->possible);
}

TEST_CASE("A silent node without processes may have some by now, and is given up in the end") {
  Network net;
  net.new_job = true;
  net.say("a");
  net.pass(kTimes.gathering);
  REQUIRE(net.order("a").possible);
  net.cut = {"b"};
  net.pass(kTimes.silence + 1s);
  CHECK_FALSE(net.order("a").possible);
  net.pass(kTimes.gone - kTimes.silence - 3s);
  CHECK(net.aparts.empty());
  net.pass(4s);
  CHECK(net.contact("a") == Contact::given_up);
  CHECK(net.aparts.size() == 1);
  net.messages = 0;
  net.pass(60s);
  CHECK(net.messages <= 2 * 61 + 7);  // the messages of "a" to itself, and some queries
}

TEST_CASE("If the first node that a user names does not answer, the node that Slurm names coordinates") {
  HeardNodes heard(kTimes.recent);
  GangMembers members("b", 7, kTimes, heard);
  Nanoseconds now = 5s;
  const auto say = [&](const char* coordinator) {
    members.report(kTenant, {.number = 5, .run = 2, .nodes = 9, .coordinator = coordinator, .is_new = true},
                   {.present = true}, now);
  };
  say("forged");
  CHECK(members.take_doubtful().empty());
  now += kTimes.doubt;
  members.advance(now);
  REQUIRE(members.take_doubtful() == std::vector<GangMembers::Run>{{5, 2}});
  members.take_messages();
  members.correct({5, 2}, 3, "a", now);
  const auto sent = members.take_messages();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].node == "a");
  CHECK(sent[0].message.nodes == 3);
  say("forged again");
  CHECK(members.find(kTenant)->job.coordinator == "a");
  CHECK(members.find(kTenant)->job.nodes == 3);
  now += kTimes.never;
  members.advance(now);
  CHECK(members.take_doubtful().empty());
  CHECK(members.find(kTenant)->contact == Contact::given_up);
}

TEST_CASE("A gang that begins no turn names its silent nodes once, and again after they were heard") {
  Network net;
  net.say_all();
  net.cut = {"b"};
  net.pass(kTimes.silence - 1s);
  CHECK(net.silent.empty());
  net.pass(2s);
  REQUIRE(net.silent.size() == 1);
  CHECK(net.silent[0].job == 5);
  CHECK(net.silent[0].nodes == std::vector<std::string>{"b"});
  net.pass(60s);
  CHECK(net.silent.size() == 1);
  net.cut = {};
  net.pass(5s);
  net.cut = {"b"};
  net.pass(kTimes.silence + 2s);
  CHECK(net.silent.size() == 2);
  net.pass(kTimes.gone);
  CHECK(net.aparts.size() == 1);
  CHECK(net.silent.size() == 2);
}

TEST_CASE("A new gang names a node that was heard lately and does not answer") {
  Network net;
  for (auto& [name, node] : net.nodes)
    for (const char* other : {"a", "b"}) node.heard->hear(other, net.now);
  net.new_job = true;
  net.cut = {"b"};
  net.say_all();
  for (auto& [name, node] : net.nodes) node.members->take_changes();
  net.pass(kTimes.never - 1s);
  CHECK(net.silent.empty());
  CHECK(net.nodes["b"].members->take_changes().empty());
  net.pass(3s);
  REQUIRE(net.silent.size() == 1);
  CHECK(net.silent[0].nodes == std::vector<std::string>{"b"});
  CHECK(net.nodes["b"].members->take_changes() == std::vector{kTenant});
  CHECK(net.contact("b") == Contact::sought);
  net.pass(60s);
  CHECK(net.silent.size() == 1);
  CHECK(net.nodes["b"].members->take_changes().empty());
  CHECK(net.aparts.empty());
}

TEST_CASE("A coordinator that was never heard is given up, and named once in the log") {
  Network net;
  net.new_job = true;
  net.cut = {"b"};
  net.say_all();
  net.nodes["b"].members->take_changes();
  net.pass(kTimes.never + 2s);
  CHECK(net.contact("b") == Contact::given_up);
  CHECK(net.nodes["b"].members->take_changes() == std::vector{kTenant});
}

TEST_CASE("A coordinator that answers without an order is not named as silent") {
  Network net;
  net.new_job = true;
  net.nodes["b"].all_known = false;
  net.nodes["b"].heard->hear("a", net.now);
  net.nodes["a"].heard->hear("a", net.now);
  net.say("a");
  net.nodes["a"].members->take_changes();
  net.pass(kTimes.never - 1s);
  CHECK_FALSE(net.gang("a").order);
  CHECK(net.nodes["a"].members->take_changes().empty());
}

TEST_CASE("A gang whose nodes Slurm does not name says so once") {
  Network net;
  net.new_job = true;
  net.slurm_answers = false;
  net.cut = {"b"};
  net.say_all();
  net.pass(kTimes.never + 1s);
  REQUIRE(net.silent.size() == 1);
  CHECK(net.silent[0].nodes.empty());
  net.pass(60s);
  CHECK(net.silent.size() == 1);
}

TEST_CASE("Writing the heard nodes does not shorten a silence that has begun") {
  HeardNodes heard(10s);
  heard.hear("a", 5s);
  CHECK(heard.text("b7", 20s) == "b7\n");
  CHECK(heard.has("a", 14s));
}

TEST_CASE("A node that Slurm names late is waited for if it was heard lately, though the gang is apart") {
  HeardNodes heard(kTimes.recent);
  GangDesk desk("a", 7, kTimes, GangPace{}, 0s, heard);
  std::uint64_t number = 0;
  std::optional<GangOrder> order;
  const auto pass = [&](Nanoseconds begin, Nanoseconds end, std::vector<GangDesk::Listed> named,
                        std::initializer_list<const char*> reports) {
    for (Nanoseconds now = begin; now < end; now += 500ms) {
      for (const char* node : reports)
        desk.hear(node,
                  {.node = node,
                   .job = 5,
                   .life = 8,
                   .number = ++number,
                   .nodes = 3,
                   .is_new = true,
                   .what = GangReport{.number = number, .present = true, .wants = true}},
                  now);
      desk.advance(now);
      for (const auto& run : desk.take_unlisted()) desk.list(run, named, now);
      for (const auto& sent : desk.take_messages())
        if (const auto* its = std::get_if<GangOrder>(&sent.message.what)) order = *its;
    }
  };
  heard.hear("c", 1000s);
  pass(1000s, 1000s + kTimes.unlisted - 1s, {}, {"a", "b"});  // Slurm does not answer
  CHECK_FALSE(order);
  pass(1000s + kTimes.unlisted, 1000s + kTimes.unlisted + 3s, {}, {"a", "b"});
  REQUIRE(order);
  CHECK(order->apart);
  const std::vector<GangDesk::Listed> all{{"a", "a"}, {"b", "b"}, {"c", "c"}};
  pass(1303s, 1400s, all, {"a", "b"});
  CHECK(order->apart);
  pass(1400s, 1403s, all, {"a", "b", "c"});
  CHECK_FALSE(order->apart);
}

TEST_CASE("A process that ended during an outage of its arbiter delays nobody once the arbiter answers") {
  Network net;
  net.say_all();
  net.cut = {"b"};
  net.pass(6s);
  REQUIRE_FALSE(net.order("a").possible);
  net.boot("b");
  net.cut = {};
  net.pass(1s);
  CHECK(net.order("a").possible);
}

TEST_CASE("A requeued job does not wait for nodes of its previous run") {
  Network net;
  net.say_all();
  net.run = 1;
  net.new_job = true;
  net.say("a");
  net.pass(kTimes.gathering);
  CHECK(net.order("a").possible);
  net.pass(2 * kTimes.gone);
  CHECK(net.contact("a") == Contact::held);
}

TEST_CASE("A member is not given up because its messages cannot be sent yet") {
  HeardNodes heard(kTimes.recent);
  GangMembers members("b", 7, kTimes, heard);
  Nanoseconds now = 5s;
  members.report(kTenant, {.number = 5, .nodes = 2, .coordinator = "a", .is_new = true}, {.present = true},
                 now);
  for (; now < 30s; now += 1s) {
    for (const GangMembers::Sent& sent : members.take_messages()) members.excuse(sent.message, now);
    members.advance(now);
  }
  CHECK(members.find(kTenant)->contact == Contact::sought);
  members.advance(now + kTimes.never);
  CHECK(members.find(kTenant)->contact == Contact::given_up);
}

TEST_CASE("A job that has ended on a node does not delay others, and is forgotten") {
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

// Jobs on node "b". Their coordinator "a" is silent, except for the orders of order().
class Line {
 public:
  Line() : members_("b", 7, kTimes, heard_) {}
  void say(std::uint32_t job, Phase phase = Phase::out, bool present = true, bool drained = true) {
    members_.report(tenant(job), {.number = job, .nodes = 2, .coordinator = "a", .is_new = true},
                    {.number = ++reports_, .phase = phase, .drained = drained, .present = present}, now_);
  }
  void order(std::uint32_t job, std::optional<GangOrder> order) {
    members_.hear({.node = "a",
                   .job = job,
                   .life = 3,
                   .number = ++messages_,
                   .reader = 7,
                   .what = order ? decltype(GangMessage::what)(*order) : GangPatience{}},
                  true, now_);
  }
  // Lets `time` pass. Slurm answers each query at once with `slurm`; nullopt: Slurm does not answer.
  void pass(Nanoseconds time) {
    for (const Nanoseconds end = now_ + time;;) {
      members_.advance(now_);
      while (const auto asked = members_.take_line_question()) {
        ++questions;
        if (slurm) members_.list(*slurm, *asked);
        members_.advance(now_);
      }
      members_.take_messages();
      for (const GangOrdered& order : members_.take_orders())
        if (!order.order) begun.emplace_back(order.tenant.value, order.started);
      if (now_ >= end) return;
      now_ = std::min(end, std::max(members_.wake().value_or(end), now_ + 1ms));
    }
  }
  bool alone(std::uint32_t job) const { return members_.find(tenant(job))->alone; }

  std::optional<std::vector<StartedJob>> slurm;
  unsigned questions = 0;
  std::vector<std::pair<std::uint64_t, Nanoseconds>> begun;

 private:
  static TenantId tenant(std::uint32_t job) { return TenantId{job}; }
  HeardNodes heard_{kTimes.recent};
  GangMembers members_;
  Nanoseconds now_ = 1000s;
  std::uint64_t reports_ = 0, messages_ = 0;
};

TEST_CASE("Jobs that are apart begin in the order in which Slurm has started them, here or not") {
  Line line;
  line.slurm = {{.number = 3, .started = 20s}, {.number = 9, .started = 10s}, {.number = 4, .started = 20s}};
  line.say(4);
  line.pass(kTimes.never + kTimes.line);
  CHECK(line.begun.empty());  // job 9 has no process on this node yet, and may have a turn on another node
  line.say(9);
  line.pass(kTimes.never + 1s);
  CHECK(line.alone(9));
  CHECK_FALSE(line.alone(4));  // job 3 started in the same second, and comes first
  line.say(3);
  line.pass(kTimes.never + 1s);
  CHECK(line.begun == std::vector<std::pair<std::uint64_t, Nanoseconds>>{{9, 10s}, {3, 20s}, {4, 20s}});
  CHECK(line.questions < 12);
}

TEST_CASE("A job that is apart does not wait for a job that has ended, or whose nodes reach each other") {
  Line line;
  line.slurm = {{.number = 3, .started = 10s}, {.number = 4, .started = 20s}};
  line.say(4);
  line.pass(kTimes.never + 1s);
  REQUIRE_FALSE(line.alone(4));
  SECTION("as Slurm says") {
    line.slurm = {{.number = 4, .started = 20s}};
    line.pass(kTimes.line);
  }
  SECTION("as its coordinator says") {
    line.say(3);
    line.order(3, GangOrder{.possible = false});
    line.pass(kTimes.heartbeat);
    CHECK_FALSE(line.alone(4));  // job 3 may have begun turns by itself on another node
    line.order(3, GangOrder{.possible = true});
    line.pass(kTimes.heartbeat);
  }
  CHECK(line.alone(4));
}

TEST_CASE("The next job asks Slurm at once whether a job without processes has ended") {
  Line line;
  line.slurm = {{.number = 3, .started = 10s}, {.number = 4, .started = 20s}};
  line.say(3);
  line.pass(kTimes.never + 1s);
  line.say(4);
  line.pass(kTimes.never + 1s);
  REQUIRE(line.alone(3));
  REQUIRE(line.alone(4));  // the core knows that job 3 comes first
  line.order(4, GangOrder{.possible = true});
  line.say(3, Phase::out, false);
  line.pass(kTimes.silence - 1s);
  line.order(4, GangOrder{.possible = true, .apart = true} /* apart again */);
  line.slurm = {{.number = 4, .started = 20s}};
  const unsigned before = line.questions;
  line.pass(2s);
  CHECK(line.alone(4));
  CHECK(line.questions <= before + 2);
}

TEST_CASE("A turn that has begun continues if the nodes no longer reach each other") {
  Line line;
  line.slurm = {{.number = 3, .started = 10s}, {.number = 4, .started = 20s}};
  line.say(4, Phase::running);
  line.order(4, GangOrder{.possible = true, .apart = true});
  line.pass(1ms);
  CHECK(line.alone(4));
}

TEST_CASE("If Slurm does not answer, a job that is apart begins after some minutes") {
  Line line;
  line.say(4);
  line.pass(kTimes.never + kTimes.unlisted - 1s);
  CHECK_FALSE(line.alone(4));
  line.pass(2s);
  CHECK(line.begun == std::vector<std::pair<std::uint64_t, Nanoseconds>>{{4, 0s}});
}

TEST_CASE("A job that is apart waits for one before it for as long as Slurm lists that one") {
  Line line;
  line.slurm = {{.number = 3, .started = 10s}, {.number = 4, .started = 20s}};
  line.say(4);
  line.pass(kTimes.never + 3 * kTimes.unlisted);
  CHECK_FALSE(line.alone(4));
  SECTION("until that one has ended") { line.slurm = {{.number = 4, .started = 20s}}; }
  SECTION("or Slurm does not list the job itself for minutes") {
    line.slurm = {{.number = 3, .started = 10s}};
    line.pass(kTimes.unlisted);
  }
  line.pass(kTimes.line + 1s);
  CHECK(line.alone(4));
}

TEST_CASE("A turn that has not begun on a node waits there for the job's place in the line") {
  Line line;
  line.slurm = {{.number = 3, .started = 10s}, {.number = 4, .started = 20s}};
  GangOrder order{.possible = true, .apart = true};
  bool began = false;
  SECTION("entering") { line.say(4, Phase::entering); }
  SECTION("leaving, where this node has drained") { line.say(4, Phase::leaving); }
  SECTION("leaving, where this node has not drained") {
    line.say(4, Phase::leaving, true, false);
    began = true;
  }
  line.order(4, order);
  line.pass(1min);
  CHECK(line.alone(4) == began);
}

TEST_CASE("A node that a job no longer has is forgotten when Slurm names the job's nodes") {
  HeardNodes heard(kTimes.recent);
  GangDesk desk("a", 7, kTimes, GangPace{}, 0s, heard);
  Nanoseconds now = 10s;
  std::uint64_t number = 0;
  std::map<std::string, GangMembers> members;
  for (const char* name : {"a", "b"}) members.emplace(name, GangMembers(name, 7, kTimes, heard));
  const auto pass = [&](Nanoseconds time, const std::set<std::string>& reach) {
    std::optional<GangOrder> order;
    for (const Nanoseconds end = now + time; now < end; now += 500ms) {
      for (const std::string& name : reach) {
        GangMembers& node = members.at(name);
        node.report(kTenant, {.number = 5, .nodes = 2, .coordinator = "a"},
                    {.number = ++number, .present = true}, now);
        for (const GangMembers::Sent& sent : node.take_messages()) desk.hear(name, sent.message, now);
      }
      desk.advance(now);
      for (const GangDesk::Run& run : desk.take_unlisted()) desk.list(run, {{"a", "a"}}, now);
      for (const GangDesk::Sent& sent : desk.take_messages())
        if (const auto* its = std::get_if<GangOrder>(&sent.message.what)) order = *its;
    }
    return order;
  };
  REQUIRE(pass(5s, {"a", "b"})->possible);
  pass(kTimes.silence + 1s, {"a"});
  CHECK(pass(kTimes.listing + 2s, {"a"})->possible);
}

TEST_CASE("A list of Slurm does not count for a job that may have started after the list was made") {
  Line line;
  line.slurm = {{.number = 4, .started = 20s}};
  line.say(4);
  line.order(4, GangOrder{.possible = true, .apart = true});
  line.pass(kTimes.started - 100ms);
  CHECK_FALSE(line.alone(4));
  line.pass(200ms);
  CHECK(line.alone(4));
}

TEST_CASE("The core is told that a gang which is apart can begin no turn, until its place has come") {
  HeardNodes heard(kTimes.recent);
  GangMembers members("b", 7, kTimes, heard);
  members.report(kTenant, {.number = 5, .nodes = 2, .coordinator = "a"}, {.number = 1, .present = true}, 9s);
  const auto order = [&](std::uint64_t number, bool apart) {
    members.hear({.node = "a",
                  .job = 5,
                  .life = 3,
                  .number = number,
                  .reader = 7,
                  .what = GangOrder{.possible = true, .apart = apart}},
                 true, 10s);
    return members.take_orders();
  };
  CHECK(order(1, false).back().order->possible);
  const auto orders = order(2, true);
  REQUIRE(orders.size() == 1);
  CHECK_FALSE(orders[0].order->possible);
}

TEST_CASE("A process whose state changes all the time causes at most one message in 10 ms") {
  Network net;
  net.say_all();
  net.pass(1s);
  net.messages = 0;
  for (unsigned i = 0; i < 5000; ++i) {
    net.nodes["b"].report.wants = i % 2 == 0;
    net.say("b");
    net.pass(200us);
  }
  CHECK(net.messages <= 3 * 101 + 8);
  CHECK(net.messages >= 100);
  net.nodes["b"].report.wants = true;
  net.say("b");
  net.pass(2 * kTimes.pause);
  CHECK(net.order("a").wanted);
}

TEST_CASE("Many silent nodes are not asked all at once") {
  HeardNodes heard(kTimes.recent);
  GangDesk desk("n0", 7, kTimes, GangPace{}, 0s, heard);
  GangMembers first("n0", 7, kTimes, heard);
  first.report(kTenant, {.number = 5, .nodes = 1000, .coordinator = "n0", .is_new = true},
               {.number = 1, .present = true}, 10s);
  for (const GangMembers::Sent& sent : first.take_messages()) desk.hear("n0", sent.message, 10s);
  desk.advance(11s);
  REQUIRE(desk.take_unlisted().size() == 1);
  std::vector<GangDesk::Listed> nodes;
  for (unsigned i = 0; i < 1000; ++i)
    nodes.push_back({.node = "n" + std::to_string(i), .address = "10.0.0." + std::to_string(i)});
  desk.take_messages();
  desk.list({5, 0}, nodes, 11s);
  desk.advance(11s);
  CHECK(desk.take_messages().size() <= 65);
  std::set<std::string> asked;
  for (Nanoseconds now = 11s; now < 14s; now = desk.wake().value()) {
    desk.advance(now);
    const auto messages = desk.take_messages();
    CHECK(messages.size() <= 65);
    for (const GangDesk::Sent& sent : messages) asked.insert(sent.address);
    REQUIRE(desk.wake() > now);
  }
  CHECK(asked.size() >= 900);
}

TEST_CASE("Orders for an earlier run of the arbiter, or for jobs without processes here, are dropped") {
  Network net;
  net.say_all();
  const std::size_t told = net.nodes["b"].told.size();
  GangMembers& members = *net.nodes["b"].members;
  const auto order_of = [](std::uint32_t job, std::uint64_t reader) {
    return GangMessage{.node = "a",
                       .job = job,
                       .life = 1,
                       .number = 1,
                       .reader = reader,
                       .what = GangOrder{.command = GangCommand::run}};
  };
  members.hear(order_of(5, 1), true, net.now);
  members.hear(order_of(6, 102), true, net.now);
  CHECK(members.take_orders().empty());
  CHECK(net.nodes["b"].told.size() == told);
  CHECK(net.order("b").command == GangCommand::wait);
}

TEST_CASE("An arbiter that writes from another address than before is the same member") {
  HeardNodes heard(kTimes.recent);
  GangDesk desk("a", 9, kTimes, GangPace{}, 0ns, heard);
  const auto write = [&desk](const char* node, const char* address, std::uint64_t second) {
    desk.hear(address,
              {.node = node,
               .job = 5,
               .life = 7,
               .number = second,
               .nodes = 2,
               .is_new = true,
               .what = GangReport{.number = second, .present = true, .wants = true, .idle = false}},
              std::chrono::seconds(second));
    desk.advance(std::chrono::seconds(second));
  };
  for (std::uint64_t second = 1; second < 30; ++second) {
    write("n1", "10.0.0.1", second);
    write("n2", second < 10 ? "10.0.0.2" : "fd00::2", second);
  }
  const std::vector<GangDesk::Sent> sent = desk.take_messages();
  REQUIRE_FALSE(sent.empty());
  CHECK(sent.back().address == "fd00::2");
  CHECK(std::get<GangOrder>(sent.back().message.what).possible);
}

TEST_CASE("A gang does not wait for a silent node that Slurm no longer names") {
  HeardNodes heard(kTimes.recent);
  GangDesk desk("a", 7, kTimes, GangPace{}, 0s, heard);
  heard.hear("c", 900s);
  const auto report_from = [&](const char* node, std::uint64_t number, Nanoseconds now) {
    desk.hear("a",
              {.node = node,
               .job = 5,
               .life = 8,
               .number = number,
               .nodes = 3,
               .is_new = true,
               .what = GangReport{.number = number, .present = true, .wants = true}},
              now);
  };
  std::vector<GangDesk::Listed> named{{"a", "a"}, {"b", "b"}, {"c", "c"}};
  std::uint64_t number = 0;
  const auto is_ordered_within = [&](Nanoseconds begin, Nanoseconds end) {
    for (Nanoseconds now = begin; now < end; now += 500ms) {
      report_from("a", ++number, now);
      report_from("b", number, now);
      desk.advance(now);
      for (const auto& run : desk.take_unlisted()) desk.list(run, named, now);
      for (const auto& sent : desk.take_messages())
        if (std::holds_alternative<GangOrder>(sent.message.what)) return true;
    }
    return false;
  };
  CHECK_FALSE(is_ordered_within(1000s, 1300s));
  named.pop_back();
  CHECK(is_ordered_within(1300s, 1400s));
  CHECK(desk.take_apart().empty());
}

}  // namespace
}  // namespace sharedgpu
