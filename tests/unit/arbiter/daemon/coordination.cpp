// SPDX-License-Identifier: Apache-2.0
// The daemon of one node of a job on several nodes: the messages that the daemon sends to other arbiters, the
// orders that it obeys, and the state that it keeps.
#include "arbiter/daemon/coordination.h"

#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "host.h"

namespace sharedgpu::test {
namespace {

using Json = nlohmann::json;

constexpr StepName kStep{.job = 12, .step = 0};

// The messages that the daemon has sent to other arbiters, and the function that receives their messages.
struct Post {
  std::vector<std::pair<std::string, GangMessage>> sent;
  Mail::Heard heard;
};
class TestMail final : public Mail {
 public:
  explicit TestMail(Post& post) : post_(post) {}
  void start(Heard heard) override { post_.heard = std::move(heard); }
  void send(const std::string& host, const std::string& text) override {
    post_.sent.emplace_back(host, parse_message(text).value());
  }

 private:
  Post& post_;
};

// The answer of a fake squeue: one job on this node, job 12, runs on two nodes.
constexpr char kLine[] = R"sh(case "$0 $*" in
*/squeue*-w*) echo 12 2 2026-11-26T21:13:11 gres:sharedgpu:1; exit ;;
esac
)sh";

// A node of a cluster whose Slurm knows the address of node n1.
struct Node {
  Post post;
  Host host;
  std::string path = std::getenv("PATH");

  // `is_named`: slurmd was told the name of this node.
  explicit Node(const std::string& slurm = "echo NodeName=n1 NodeAddr=10.0.0.1 NodeHostName=x",
                bool mail = true, bool is_named = true) {
    if (!is_named) unsetenv("SLURMD_NODENAME");
    for (const char* command : {"/scontrol", "/squeue"}) {
      const std::string file = host.folder.path + command;
      std::ofstream(file) << "#!/bin/sh\n" + (kLine + slurm) + "\n";
      chmod(file.c_str(), 0755);
    }
    setenv("PATH", (host.folder.path + ":" + path).c_str(), 1);
    if (mail) host.make_mail = [this] { return std::make_unique<TestMail>(post); };
    host.restart();
  }
  ~Node() { setenv("PATH", path.c_str(), 1); }
  void register_job(std::uint8_t gang) {
    Process process;
    Guest slurmstepd(host, 0, {}, process.pid());
    if (gang != 0) {
      RegisterGang nodes{.job = kStep.job, .uid = kUser, .nodes = 2};
      std::strcpy(nodes.coordinator, "n1");
      REQUIRE(slurmstepd.say(nodes).find<RegisterGangReply>()->accepted == 1);
    }
    RegisterJob job{.step = kStep, .uid = kUser, .options = {}};
    job.options.units = 1;
    job.gang = gang;
    REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
  }
  // The gang of the first tenant in the status.
  Json gang() const { return host.status()["tenants"][0]["gang"]; }
  const GangMessage& await_message() {
    host.run_until([this] { return !post.sent.empty(); });
    return post.sent.back().second;
  }
};

// A process of the job, which is about to use the GPU.
struct Member {
  Process child;
  Guest guest;
  explicit Member(Host& host) : guest(host, kUser, kStep, child.pid()) {
    REQUIRE(guest.say(Hello{}).find<Welcome>());
    REQUIRE(guest.say(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = {}}).find<Attached>());
    guest.say(Want{});
  }
};

TEST_CASE(
    "A job on several nodes has its turn by the orders of its first node, at the address that Slurm tells") {
  Node node;
  node.register_job(1);
  Member member(node.host);
  const GangMessage first = node.await_message();
  CHECK(node.post.sent[0].first == "10.0.0.1");
  CHECK(first.job == kStep.job);
  CHECK(std::get<GangReport>(first.what).present);
  CHECK(first.nodes == 2);
  CHECK(first.is_new);
  CHECK(node.host.status()["tenants"][0]["lease"] == false);
  CHECK(node.gang() ==
        Json{{"coordinator", "n1"}, {"nodes", 2}, {"contact", "sought"}, {"command", nullptr}});

  HeardNodes heard(GangTimes{}.recent);
  GangDesk desk("n1", 9, GangTimes{}, GangPace{}, {}, heard);
  node.host.run_until([&] {
    const Nanoseconds now = node.host.system.now();
    for (const auto& [address, message] : std::exchange(node.post.sent, {})) desk.hear("b", message, now);
    desk.advance(now);
    for (const GangDesk::Run& run : desk.take_unlisted()) desk.list(run, {{first.node, "b"}}, now);
    for (const GangDesk::Sent& sent : desk.take_messages())
      node.post.heard("10.0.0.1", format_message(sent.message));
    for (const Message& message : member.guest.hear().answers)
      if (message.type == MessageType::restore)
        member.guest.say(Ready{.epoch = message.as<Restore>().epoch, .use = {}});
    return node.host.status()["tenants"][0]["lease"] == true;
  });
  CHECK(node.gang()["contact"] == "held");
  CHECK(node.gang()["command"] == "run");
}

TEST_CASE("Texts that are no messages of an arbiter, and reports of strangers, do not harm the daemon") {
  Node node;
  node.register_job(1);
  for (const char* text :
       {"", "sharedgpu-order-3", "x", "sharedgpu-order-3 n1 12 0 1 1 1 0 0 1 1 1 0 0 0 0 0 0 0 0 0"})
    node.post.heard("10.0.0.7", text);
  HeardNodes heard(GangTimes{}.recent);
  GangMembers other("n2", 7, GangTimes{}, heard);
  other.report(TenantId{1}, {.number = 99, .nodes = 2, .coordinator = "this"}, {.number = 1, .present = true},
               {});
  for (const GangMembers::Sent& sent : other.take_messages())
    node.post.heard("10.0.0.7", format_message(sent.message));
  node.host.run_until([&] { return !node.post.sent.empty(); });
  CHECK(node.post.sent[0].first == "10.0.0.7");  // the answer goes to the sender's address
  CHECK(node.post.sent[0].second.reader == 7);
}

TEST_CASE(
    "If Slurm does not tell the address of the coordinator, no message is sent, and in the end the job has "
    "its turns by itself") {
  std::string scontrol;
  SECTION("it fails") { scontrol = "exit 1"; }
  SECTION("it does not know the node") { scontrol = "echo Node n1 not found; exit 1"; }
  SECTION("the address is a name that nobody knows") {
    scontrol = "echo NodeName=n1 NodeAddr=n1.invalid X=y";
  }
  Node node(scontrol);
  node.register_job(1);
  Member member(node.host);
  node.host.run_until([&] { return node.host.status()["tenants"][0]["lease"] == true; });
  CHECK(node.gang()["contact"] == "given-up");
  CHECK(node.post.sent.empty());
}

constexpr char kSlurmOfTwoNodes[] = R"sh(case "$0 $*" in
*/squeue*) echo 11 n9; echo 12 "n[1-2]" ;;
*" n[1-2]") echo NodeName=n1 NodeAddr=10.0.0.1 X=y; echo NodeName=n2 NodeAddr=10.0.0.2 X=y ;;
*) echo NodeName=n1 NodeAddr=10.0.0.1 X=y ;;
esac)sh";

// Node n2 reports that the job has a process on n2. `life` numbers the starts of n2's arbiter.
void report_elsewhere(Node& node, std::uint64_t life = 7) {
  HeardNodes heard(GangTimes{}.recent);
  GangMembers other("n2", life, GangTimes{}, heard);
  other.report(TenantId{1}, {.number = kStep.job, .nodes = 2, .coordinator = "this", .is_new = true},
               {.number = 1, .present = true}, {});
  for (const GangMembers::Sent& sent : other.take_messages())
    node.post.heard("10.0.0.7", format_message(sent.message));
}

TEST_CASE("A coordinator asks the nodes of a job that have not reported, which Slurm names") {
  Node node(kSlurmOfTwoNodes);
  node.register_job(1);
  report_elsewhere(node);
  const auto asks_first_node = [](const auto& sent) {
    return sent.first == "10.0.0.1" && std::holds_alternative<GangQuestion>(sent.second.what) &&
           sent.second.job == kStep.job;
  };
  node.host.run_until(
      [&] { return std::any_of(node.post.sent.begin(), node.post.sent.end(), asks_first_node); });
  CHECK(node.gang() == nullptr);
}

TEST_CASE("A coordinator that some nodes of a job do not answer logs it once") {
  Node node(kSlurmOfTwoNodes);
  node.register_job(1);
  std::string line = "job 12: 1 of its 2 nodes answer, these do not: n1: it has its turns on each node";
  SECTION("a node that it has never heard") {}
  SECTION("a node that it has heard lately") {
    const GangMessage question{.node = "n1", .job = 99, .life = 9, .number = 1, .what = GangQuestion{}};
    node.post.heard("10.0.0.1", format_message(question));
    line = "job 12 begins no turn, since these nodes are silent: n1";
  }
  std::vector<std::string> lines;
  std::uint64_t life = 1;
  node.host.run_until([&] {
    report_elsewhere(node, ++life);
    return !(lines = node.host.new_log_lines()).empty();
  });
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find(line) != std::string::npos);
}

TEST_CASE("An arbiter that is asked for a job without processes here says so, to the address that asks") {
  Node node;
  node.register_job(0);
  const GangMessage question{
      .node = "n7", .job = 99, .run = 3, .life = 8, .number = 1, .what = GangQuestion{}};
  node.post.heard("10.0.0.7", format_message(question));
  REQUIRE(node.post.sent.size() == 1);
  CHECK(node.post.sent[0].first == "10.0.0.7");
  const GangMessage& answer = node.post.sent[0].second;
  CHECK(answer.job == 99);
  CHECK(answer.run == 3);
  CHECK(answer.is_new);
  CHECK_FALSE(std::get<GangReport>(answer.what).present);
}

TEST_CASE("A job stays a gang while one of its processes lives, whatever a later step registers") {
  Node node;
  node.register_job(1);
  {
    Member member(node.host);
    node.await_message();
    node.register_job(0);
    CHECK(node.gang()["nodes"] == 2);
    node.post.sent.clear();
    member.child.end();
    CHECK(node.await_message().job == kStep.job);
  }
}

TEST_CASE("The next arbiter knows the nodes of a job from the ledger") {
  Node node;
  node.register_job(1);
  const auto records = node.host.ledger();
  CHECK(std::count(records.begin(), records.end(), "gang 1 2 n1") == 1);
  node.host.restart();
  Member member(node.host);
  CHECK(node.await_message().nodes == 2);
  CHECK_FALSE(node.await_message().is_new);  // the earlier arbiter may have received orders
  node.register_job(1);
  node.post.sent.clear();
  CHECK_FALSE(node.await_message().is_new);
}

TEST_CASE("The next arbiter knows which nodes its predecessor has heard") {
  Node node;
  const std::string file = node.host.settings.state_dir + "/nodes";
  node.register_job(1);
  Member member(node.host);
  const GangMessage& report = node.await_message();
  node.post.heard("10.0.0.1", format_message({.node = "n1",
                                              .job = report.job,
                                              .run = report.run,
                                              .life = 8,
                                              .number = 1,
                                              .reader = report.life,
                                              .what = GangPatience{}}));
  std::string text;
  REQUIRE(kHostSystem.read_file(file, text).ok());
  CHECK(text.find("\nn1 ") != std::string::npos);
  node.host.restart();
  node.register_job(1);
  const GangMessage question{.node = "n9", .job = 99, .life = 9, .number = 1, .what = GangQuestion{}};
  node.post.heard("10.0.0.9", format_message(question));
  text.clear();
  REQUIRE(kHostSystem.read_file(file, text).ok());
  CHECK(text.find("\nn1 ") != std::string::npos);
  CHECK(text.find("\nn9 ") != std::string::npos);
}

TEST_CASE("A file of heard nodes that cannot be written is named in the log, and harms nothing") {
  Node node;
  const std::string file = node.host.settings.state_dir + "/nodes";
  REQUIRE(mkdir((file + ".new").c_str(), 0700) == 0);
  node.register_job(1);
  node.host.new_log_lines();
  const GangMessage question{.node = "n9", .job = 99, .life = 9, .number = 1, .what = GangQuestion{}};
  node.post.heard("10.0.0.9", format_message(question));
  CHECK(node.post.sent.size() == 1);
  const std::vector<std::string> lines = node.host.new_log_lines();
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find(file + ": ") != std::string::npos);
}

TEST_CASE("A job that is requeued on one node is no longer a gang") {
  Node node;
  node.register_job(1);
  node.host.run_until([&] {  // waits until the arbiter knows that the earlier step has ended
    node.register_job(0);
    const auto records = node.host.ledger();
    return std::count(records.begin(), records.end(), "gang 1 0 -") == 1;
  });
  Member member(node.host);
  CHECK(node.host.status()["tenants"][0]["lease"] == true);
  CHECK(node.gang() == nullptr);
}

TEST_CASE("Without mail a job has independent turns on each node as soon as Slurm has told its place") {
  Node node("exit 1", false);
  node.register_job(1);
  Member member(node.host);
  CHECK(node.host.status()["tenants"][0]["lease"] == false);
  node.host.run_until([&] { return node.host.status()["tenants"][0]["lease"] == true; });
  CHECK(node.gang()["contact"] == "given-up");
  CHECK(node.host.new_log_lines().empty());
}

TEST_CASE("No message to another arbiter is sent before Slurm has told the arbiter the name of its node") {
  Node node(R"sh(echo NodeName=n1 Arch=x NodeAddr=10.0.0.1 NodeHostName=x V=1
case "$*" in *node) echo NodeName=n7 Arch=x NodeAddr=10.0.0.7 NodeHostName=$(uname -n | cut -d. -f1) V=1 ;; esac)sh",
            true, false);
  node.register_job(1);
  Member member(node.host);
  CHECK(node.await_message().node == "n7");
}

TEST_CASE("An arbiter whose messages are of another version is named in the log") {
  Node node;
  node.register_job(1);
  Member member(node.host);
  node.await_message();
  node.host.new_log_lines();
  node.post.heard("10.0.0.2", "sharedgpu-report-1 12 0 1 1 0 2");
  node.post.heard("10.0.0.3", "anything else");
  const std::vector<std::string> lines = node.host.new_log_lines();
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("10.0.0.2: an arbiter of another version") != std::string::npos);
}

}  // namespace
}  // namespace sharedgpu::test
