// SPDX-License-Identifier: Apache-2.0
// sharedgpud as a separate process, with well-behaved and hostile peers on its socket.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "protocol/channel.h"
#include "protocol/lease_page.h"
#include "protocol/step_names.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

constexpr GpuUuid kGpu{{1}};
constexpr auto kPatience = 20s;  // the wait for events that must happen; no test measures time

class Daemon {
 public:
  explicit Daemon(const std::string& more = {}) {
    char name[] = "/tmp/sharedgpu-test-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    folder_ = name;
    std::ofstream(config()) << "Socket=" << socket() << "\nStateDir=" << folder_ << "/state\nQuantum=1s\n"
                            << "LogFile=" << folder_ << "/log\nLogLevel=debug\nMemoryReserve=0%\n"
                            << more;
    start();
  }
  ~Daemon() {
    stop(SIGKILL);
    std::filesystem::remove_all(folder_);
  }
  void start() {
    pid_ = fork();
    if (pid_ == 0) {
      execl(SHAREDGPUD, SHAREDGPUD, "--config", config().c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
    auto end = std::chrono::steady_clock::now() + kPatience;
    for (Channel channel; channel.connect(socket().c_str()) != 0; std::this_thread::sleep_for(5ms))
      REQUIRE(std::chrono::steady_clock::now() < end);
  }
  int stop(int number) {
    if (pid_ <= 0) return -1;
    kill(pid_, number);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
  }
  // The number of descriptors that the daemon has open.
  std::size_t descriptors() const {
    const std::filesystem::directory_iterator all("/proc/" + std::to_string(pid_) + "/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
  std::string socket() const { return folder_ + "/run/s.sock"; }
  std::string config() const { return folder_ + "/c.conf"; }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  pid_t pid_ = 0;
};

// Two simulated GPUs. Daemons that start while this object exists find these GPUs.
struct SimulatedGpus {
  std::string state = "/dev/shm/sharedgpu-test-" + std::to_string(getpid());
  SimulatedGpus() {
    setenv("LD_LIBRARY_PATH", SIMULATED_NVML, 1);
    setenv("SIMGPU_STATE", state.c_str(), 1);
    setenv("SIMGPU_DEVICES", "2", 1);
  }
  ~SimulatedGpus() {
    for (const char* name : {"LD_LIBRARY_PATH", "SIMGPU_STATE", "SIMGPU_DEVICES"}) unsetenv(name);
    for (const char* device : {"", ".1"}) std::filesystem::remove(state + device);
  }
};

// A peer that waits for a given message.
struct SocketClient {
  Channel channel;
  LeasePageWriter unused;
  const LeasePage* page = nullptr;

  explicit SocketClient(const Daemon& daemon) { REQUIRE(channel.connect(daemon.socket().c_str()) == 0); }
  ~SocketClient() {
    if (page != nullptr) munmap(const_cast<LeasePage*>(page), LeasePage::kSize);
  }

  template <class Body>
  void say(const Body& body) {
    REQUIRE(channel.send(Message::of(body)) == 0);
  }
  // Returns the next message of this kind; skips other messages.
  template <class Body>
  Body hear() {
    for (;;) {
      pollfd entry = {.fd = channel.fd(), .events = POLLIN, .revents = 0};
      REQUIRE(poll(&entry, 1, 20000) == 1);
      Message message;
      UniqueFd fd;
      REQUIRE(channel.receive(message, fd) == 0);
      if (message.type == MessageType::welcome && page == nullptr) {
        page = map_lease_page(fd.get(), nullptr);
        REQUIRE(page != nullptr);
      }
      if (message.type == Body::kType) return message.as<Body>();
    }
  }
  bool is_dropped() {
    for (;;) {
      pollfd entry = {.fd = channel.fd(), .events = POLLIN, .revents = 0};
      if (poll(&entry, 1, 20000) != 1) return false;
      Message message;
      UniqueFd fd;
      int error = channel.receive(message, fd);
      if (error != 0) return error == ECONNRESET;
    }
  }
  bool open() const { return LeasePage::is_open(page->gate.load()); }
  void await_gate(bool wanted) {
    auto end = std::chrono::steady_clock::now() + kPatience;
    while (open() != wanted) {
      REQUIRE(std::chrono::steady_clock::now() < end);
      std::this_thread::sleep_for(1ms);
    }
  }
  void attach(Bytes total = gibibytes(1)) { say(Attach{.gpu = kGpu, .total = total, .name = "Test GPU"}); }
};

Json status_of(const Daemon& daemon) {
  SocketClient client(daemon);
  client.say(StatusQuery{});
  Message message;
  UniqueFd fd;
  REQUIRE(client.channel.receive(message, fd) == 0);
  REQUIRE(message.type == MessageType::status_reply);
  std::string text(message.as<StatusReply>().size, '\0');
  REQUIRE(pread(fd.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  return Json::parse(text);
}

Json await_status(const Daemon& daemon, const std::function<bool(const Json&)>& holds) {
  auto end = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    Json status = status_of(daemon);
    if (holds(status)) return status;
    REQUIRE(std::chrono::steady_clock::now() < end);
    std::this_thread::sleep_for(5ms);
  }
}

RunToken new_run(SocketClient& anchor) {
  anchor.say(RunRequest{});
  return anchor.hear<RunReply>().token;
}

Hello hello_of(const RunToken& token) {
  Hello hello;
  hello.token = token;
  return hello;
}

MemoryUse use(Bytes swappable, Bytes resident) {
  return {.swappable = swappable, .resident = resident, .pinned = {}, .context = {}, .host = {}};
}

TEST_CASE("A session's life over the socket") {
  Daemon daemon;
  SocketClient client(daemon);
  client.say(Hello{});
  auto welcome = client.hear<Welcome>();
  CHECK(welcome.session.value == 1);
  CHECK_FALSE(client.open());
  client.attach();
  CHECK(client.hear<Attached>().capacity == gibibytes(1));
  client.await_gate(true);
  client.say(Usage{.request = 5, .use = use(mebibytes(100), {}), .stuck = 0});
  auto verdict = client.hear<Verdict>();
  CHECK(verdict.request == 5);
  CHECK(verdict.granted == 1);
  CHECK(verdict.allowed == mebibytes(100));
  client.say(Usage{.request = 6, .use = use(gibibytes(2), {}), .stuck = 0});
  CHECK(client.hear<Verdict>().granted == 0);
  client.say(MemoryQuery{.request = 7});
  CHECK(client.hear<MemoryView>().free == gibibytes(1) - mebibytes(100));

  Json status = status_of(daemon);
  REQUIRE(status["tenants"].size() == 1);
  CHECK(status["tenants"][0]["footprint_bytes"] == mebibytes(100).count);
  CHECK(status["tenants"][0]["lease"] == true);
  CHECK(status["tenants"][0]["pids"][0] == getpid());
  CHECK(status["gpus"][0]["name"] == "Test GPU");
  CHECK(status["gpus"][0]["verified"] == false);
}

// A client that sends and receives the messages of an old library version as raw bytes.
struct OldClient {
  UniqueFd socket;
  unsigned char heard[256] = {};

  explicit OldClient(const Daemon& daemon) {
    Channel channel;
    REQUIRE(channel.connect(daemon.socket().c_str()) == 0);
    socket.reset(fcntl(channel.fd(), F_DUPFD_CLOEXEC, 0));
    REQUIRE(socket);
  }
  void say(unsigned char version, unsigned char type, std::initializer_list<unsigned char> body) {
    unsigned char bytes[256] = {0x55, 0x50, 0x47, 0x53, version, 0, type, 0};
    std::copy(body.begin(), body.end(), bytes + 16);
    REQUIRE(send(socket.get(), bytes, sizeof bytes, MSG_NOSIGNAL) == sizeof bytes);
  }
  // Skips other messages. Returns false if the arbiter has closed the connection.
  bool hear(unsigned char version, unsigned char type) {
    for (;;) {
      pollfd entry = {.fd = socket.get(), .events = POLLIN, .revents = 0};
      REQUIRE(poll(&entry, 1, 20000) == 1);
      if (recv(socket.get(), heard, sizeof heard, 0) != sizeof heard) return false;
      CHECK(heard[4] == version);
      if (heard[6] == type) return true;
    }
  }
};

TEST_CASE("A library of an earlier version is served") {
  Daemon daemon;
  OldClient client(daemon);
  client.say(4, 1, {});  // Hello
  REQUIRE(client.hear(4, 64));
  client.say(4, 2, {7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40});  // Attach: GPU 7, 1 GiB
  CHECK(client.hear(4, 65));
  client.say(4, 4, {});       // Want
  client.say(4, 8, {42, 0});  // MemoryQuery
  CHECK(client.hear(4, 70));
  CHECK(client.heard[16] == 42);
}

TEST_CASE("A library of too old a version is refused by a message that it understands") {
  Daemon daemon;
  OldClient client(daemon);
  client.say(3, 1, {});
  REQUIRE(client.hear(3, 71));
  CHECK(std::string(reinterpret_cast<const char*>(client.heard + 16)).find("newer") != std::string::npos);
  CHECK_FALSE(client.hear(3, 71));
}

TEST_CASE("SwapPerUnit limits the evictable memory of a tenant, and the status shows the limit") {
  Daemon daemon;
  daemon.stop(SIGTERM);
  std::ofstream(daemon.config(), std::ios::app) << "SwapPerUnit=300MiB\n";
  daemon.start();
  SocketClient client(daemon);
  client.say(Hello{});
  client.attach();
  client.hear<Attached>();
  client.say(Usage{.request = 1, .use = use(mebibytes(200), {}), .stuck = 0});
  CHECK(client.hear<Verdict>().granted == 1);
  client.say(Usage{.request = 2, .use = use(mebibytes(301), {}), .stuck = 0});
  const auto verdict = client.hear<Verdict>();
  CHECK(verdict.granted == 0);
  CHECK(verdict.host_most == mebibytes(300));
  client.say(MemoryQuery{.request = 3});
  CHECK(client.hear<MemoryView>().free == mebibytes(100));

  const Json status = status_of(daemon);
  CHECK(status["swap_per_unit_bytes"] == mebibytes(300).count);
  CHECK(status["tenants"][0]["host_budget_bytes"] == mebibytes(300).count);
  MemoryUse limited = use(mebibytes(200), {});
  limited.host_limit = mebibytes(250);
  client.say(Usage{.request = 0, .use = limited, .stuck = 0});
  CHECK(status_of(daemon)["tenants"][0]["host_budget_bytes"] == mebibytes(250).count);
}

TEST_CASE(
    "A process without a session gets the values of its tenant's GPU, and nothing about other tenants") {
  Daemon daemon;
  SocketClient anchor(daemon), asker(daemon);
  RunToken token = new_run(anchor);
  auto ask = [&](const GpuQuery& query) {
    asker.say(query);
    return asker.hear<GpuReply>();
  };
  CHECK(ask({.token = token, .gpu = kGpu}).known == 0);

  SocketClient other(daemon);
  other.say(Hello{});
  other.attach();
  other.hear<Attached>();
  other.say(Usage{.request = 1, .use = use(mebibytes(300), {}), .stuck = 0});
  CHECK(other.hear<Verdict>().granted == 1);
  GpuReply reply = ask({.token = token, .gpu = kGpu});
  CHECK(reply.known == 1);
  CHECK(reply.total == gibibytes(1));
  CHECK(reply.free == gibibytes(1));
  CHECK(reply.processes == 0);

  // One reply cannot hold so many processes.
  constexpr std::uint32_t kMembers = GpuReply::kProcesses + 2;
  std::vector<std::unique_ptr<SocketClient>> members;
  for (std::uint32_t i = 0; i < kMembers; ++i) {
    members.push_back(std::make_unique<SocketClient>(daemon));
    members.back()->say(hello_of(token));
    members.back()->attach();
    members.back()->hear<Attached>();
    members.back()->say(Usage{.request = 1, .use = use(mebibytes(i + 1), {}), .stuck = 0});
    CHECK(members.back()->hear<Verdict>().granted == 1);
  }
  reply = ask({.token = token, .gpu = kGpu});
  CHECK(reply.processes == kMembers);
  CHECK(reply.free == gibibytes(1) - mebibytes(kMembers * (kMembers + 1) / 2));
  for (std::uint32_t i = 0; i < GpuReply::kProcesses; ++i) {
    CHECK(reply.process[i].pid == static_cast<std::uint32_t>(getpid()));
    CHECK(reply.process[i].used == mebibytes(i + 1));
  }
  reply = ask({.token = token, .gpu = kGpu, .first = GpuReply::kProcesses});
  CHECK(reply.processes == kMembers);
  CHECK(reply.process[1].used == mebibytes(kMembers));
  CHECK(reply.process[2].pid == 0);
  CHECK(ask({.token = token, .gpu = kGpu, .first = ~0u}).processes == kMembers);

  // A peer with a wrong or missing token sees no other tenant, and creates none.
  RunToken wrong = token;
  wrong.bytes[0] ^= 1;
  for (const RunToken& stranger : {wrong, RunToken{}}) {
    reply = ask({.token = stranger, .gpu = kGpu});
    CHECK(reply.processes <= 1);
    CHECK(reply.process[1].pid == 0);
  }
  GpuUuid none = kGpu;
  none.bytes[0] ^= 1;
  CHECK(ask({.token = token, .gpu = none}).known == 0);
  CHECK(status_of(daemon)["tenants"].size() == 2);
}

TEST_CASE("A tenant without swapping sees the memory of a GPU as the driver reports it") {
  Daemon daemon;
  SocketClient anchor(daemon), member(daemon);
  JobOptions options;
  options.backend = Backend::native;
  options.backend_given = 1;
  anchor.say(RunRequest{.options = options});
  RunToken token = anchor.hear<RunReply>().token;
  member.say(hello_of(token));
  member.attach();
  member.hear<Attached>();
  SocketClient asker(daemon);
  asker.say(GpuQuery{.token = token, .gpu = kGpu});
  CHECK(asker.hear<GpuReply>().known == 0);
}

TEST_CASE("A whole handoff over the socket, during which the arbiter dies") {
  Daemon daemon;
  SocketClient anchor_a(daemon), anchor_b(daemon);
  RunToken token_a = new_run(anchor_a), token_b = new_run(anchor_b);
  SocketClient a(daemon), b(daemon);
  a.say(hello_of(token_a));
  a.attach();
  a.hear<Attached>();
  a.say(Usage{.request = 1, .use = use(mebibytes(700), {}), .stuck = 0});
  CHECK(a.hear<Verdict>().granted == 1);
  a.say(Usage{.request = 0, .use = use(mebibytes(700), mebibytes(700)), .stuck = 0});
  b.say(hello_of(token_b));
  Epoch epoch_b = b.hear<Welcome>().epoch;
  b.attach();
  b.hear<Attached>();
  b.await_gate(true);
  b.say(Usage{.request = 1, .use = use(mebibytes(700), {}), .stuck = 0});
  const Revoke revoke_b = b.hear<Revoke>();
  CHECK(revoke_b.epoch == epoch_b);
  CHECK_FALSE(b.open());
  b.say(Released{
      .epoch = epoch_b, .order = revoke_b.order, .wants = 1, .overuse = {}, .use = use(mebibytes(700), {})});
  CHECK(b.hear<Verdict>().granted == 1);

  const Revoke revoke_a = a.hear<Revoke>();
  CHECK_FALSE(a.open());
  a.say(Released{.epoch = revoke_a.epoch,
                 .order = revoke_a.order,
                 .wants = 0,
                 .overuse = {},
                 .use = use(mebibytes(700), mebibytes(700))});
  Bytes kept = a.hear<Evict>().allowed;
  CHECK(kept <= mebibytes(324));  // 1 GiB minus the 700 MiB that the other tenant may allocate
  a.say(Usage{.request = 0, .use = use(mebibytes(700), kept), .stuck = 0});
  Restore restore = b.hear<Restore>();
  while (restore.allowed < mebibytes(700)) restore = b.hear<Restore>();
  b.say(Ready{.epoch = restore.epoch, .use = use(mebibytes(700), mebibytes(700))});
  b.await_gate(true);

  daemon.stop(SIGKILL);
  CHECK(b.open());  // the lease page outlives the arbiter
  daemon.start();
  SocketClient again(daemon);
  Hello hello = hello_of(token_b);
  hello.resuming = hello.held = 1;
  hello.epoch = restore.epoch;
  again.say(hello);
  again.hear<Welcome>();
  CHECK(again.open());
  again.attach();
  again.hear<Attached>();
  again.say(Usage{.request = 0, .use = use(mebibytes(700), mebibytes(700)), .stuck = 0});
  Json status = await_status(daemon, [](const Json& json) { return json["recovering"] == false; });
  CHECK(again.open());
  CHECK(status["tenants"][0]["lease"] == true);
}

TEST_CASE("A peer that sends something other than a message is dropped, with no effect on other peers") {
  Daemon daemon;
  SocketClient good(daemon);
  good.say(Hello{});
  good.attach();
  good.hear<Attached>();
  SocketClient bad(daemon);
  SECTION("garbage") { REQUIRE(send(bad.channel.fd(), "garbage", 7, 0) == 7); }
  SECTION("an empty datagram") { REQUIRE(send(bad.channel.fd(), "", 0, 0) == 0); }
  SECTION("an unknown type") {
    Message message = Message::of(Want{});
    message.type = static_cast<MessageType>(999);
    REQUIRE(bad.channel.send(message) == 0);
  }
  SECTION("an answer for a question") { bad.say(Welcome{}); }
  SECTION("no Hello before") { bad.say(Want{}); }
  SECTION("two Hellos") {
    bad.say(Hello{});
    bad.say(Hello{});
  }
  SECTION("impossible numbers") {
    bad.say(Hello{});
    bad.attach();
    bad.say(Usage{.request = 1, .use = use(Bytes{~0ull}, {}), .stuck = 0});
  }
  SECTION("more deadlines than can be") {
    bad.say(Hello{});
    bad.attach();
    bad.say(Deadlines{.met = ~0ull, .missed = 0});
  }
  SECTION("a GPU without memory") {
    bad.say(Hello{});
    bad.say(Attach{.gpu = {{9}}, .total = {}, .name = {}});
  }
  SECTION("two GPUs") {
    bad.say(Hello{});
    bad.attach();
    bad.say(Attach{.gpu = {{9}}, .total = gibibytes(1), .name = {}});
  }
  CHECK(bad.is_dropped());
  good.say(MemoryQuery{.request = 1});
  CHECK(good.hear<MemoryView>().request == 1);
}

TEST_CASE("A peer that asks and does not read the answers is dropped") {
  Daemon daemon;
  SocketClient bad(daemon);
  bad.say(Hello{});
  bad.attach();
  // Requests far more answers than the socket and the arbiter's queue can hold.
  Message question = Message::of(MemoryQuery{});
  int error = 0;
  for (int i = 0; i < 200000 && error == 0; ++i) error = bad.channel.send(question);
  CHECK((error == EPIPE || error == ECONNRESET));
  SocketClient good(daemon);
  good.say(Hello{});
  CHECK(good.hear<Welcome>().session.value > 0);
}

TEST_CASE("A peer that asks for the status again and again and does not read is dropped") {
  Daemon daemon;
  SocketClient bad(daemon);
  const Message question = Message::of(StatusQuery{});
  int error = 0;
  for (int i = 0; i < 200000 && error == 0; ++i) error = bad.channel.send(question);
  CHECK((error == EPIPE || error == ECONNRESET));
  SocketClient patient(daemon);
  for (int i = 0; i < 20; ++i) {
    patient.say(StatusQuery{});
    CHECK(patient.hear<StatusReply>().size > 0);
  }
}

TEST_CASE("A borrower or lender that does not read costs the arbiter no descriptors") {
  Daemon daemon;
  SocketClient anchor(daemon), lender(daemon), borrower(daemon);
  const RunToken token = new_run(anchor);
  constexpr std::uint64_t kLender = 77;
  for (SocketClient* each : {&lender, &borrower}) {
    each->say(hello_of(token));
    each->say(Attach{
        .gpu = kGpu, .total = gibibytes(1), .name = {}, .lender = each == &lender ? kLender : kLender + 1});
    each->hear<Attached>();
  }
  const std::size_t before = daemon.descriptors();
  const Message question = Message::of(Borrow{.request = 1, .name = {.lender = kLender, .loan = 1}});
  for (int i = 0; i < 2000 && borrower.channel.send(question) == 0; ++i) {
  }
  status_of(daemon);
  CHECK(daemon.descriptors() < before + 8);
}

TEST_CASE("A run that has ended is forgotten even if the process that requested it lives") {
  SimulatedGpus gpus;
  Daemon daemon;
  const auto units = [&] {
    const Json status = status_of(daemon);
    return status["gpus"][0]["units"].get<int>() + status["gpus"][1]["units"].get<int>();
  };
  // The arbiter reuses some of the files in which it sends answers. These queries make the arbiter create all
  // these files.
  for (int i = 0; i < 20; ++i) REQUIRE(units() == 0);
  const std::size_t before = daemon.descriptors();
  JobOptions options;
  options.units = ~0u;
  SocketClient greedy(daemon);
  greedy.say(RunRequest{.options = options});
  CHECK(greedy.is_dropped());
  options.units = 1000;
  for (int i = 0; i < 20; ++i) {
    SocketClient run(daemon);
    run.say(RunRequest{.options = options});
    CHECK(run.hear<RunReply>().gpus.count == 1);
    CHECK(units() == 1);  // no trusted batch system has granted more units
    run.channel = {};
    await_status(daemon, [&](const Json&) { return units() == 0; });
  }
  CHECK(daemon.descriptors() < before + 10);  // the arbiter keeps no descriptor for each of the 20 runs
  daemon.stop(SIGKILL);
  daemon.start();
  CHECK(units() == 0);
}

TEST_CASE("A step gets GPUs that it can open") {
  SimulatedGpus gpus;
  Daemon daemon;
  if (getuid() != 0) {
    WARN("needs root to register jobs");
    return;
  }
  const auto told = [&](const RegisterJob& job) {
    SocketClient slurmstepd(daemon);
    slurmstepd.say(job);
    return slurmstepd.hear<RegisterReply>().gpus;
  };
  RegisterJob job{.step = {.job = 12, .step = 0}, .uid = 1234, .options = {}, .devices = {0b10}};
  const GpuList second = told(job);
  CHECK(second.count == 1);
  CHECK(second.known == 1);
  job.step.job = 13;
  CHECK(told(job).gpu[0] == second.gpu[0]);
  job.devices = {0b01};
  CHECK(told(job).gpu[0] != second.gpu[0]);
  // The placement by an earlier arbiter is kept if the step can open the GPU.
  daemon.stop(SIGKILL);
  daemon.start();
  job.devices = {};
  CHECK(told(job).gpu[0] == second.gpu[0]);
  job.step.job = 14;
  job.devices = {0b100};
  CHECK(told(job).count == 0);
}

TEST_CASE("A user whose priority exceeds the site's limit is named in the log") {
  Daemon daemon;
  if (getuid() != 0) {
    WARN("needs root to register jobs");
    return;
  }
  daemon.stop(SIGTERM);
  std::ofstream(daemon.config(), std::ios::app) << "MaxPriority=5\n";
  daemon.start();
  for (const std::int32_t priority : {5, 6}) {
    SocketClient slurmstepd(daemon);
    RegisterJob job{.step = {.job = 12, .step = kBatchStep}, .uid = 1234, .options = {}, .devices = {}};
    job.options.priority = priority;
    slurmstepd.say(job);
    slurmstepd.hear<RegisterReply>();
  }
  std::ifstream file(daemon.folder() + "/log");
  const std::string log(std::istreambuf_iterator<char>(file), {});
  CHECK(log.find("asks for priority 6, but gets only MaxPriority") != std::string::npos);
  CHECK(log.find("asks for priority 5") == std::string::npos);
}

TEST_CASE("A repeated Attach is recorded once, and a second GPU of a session is refused") {
  Daemon daemon;
  auto records = [&] {
    std::ifstream ledger(daemon.folder() + "/state/ledger");
    return std::count(std::istreambuf_iterator<char>(ledger), {}, '\n');
  };
  SocketClient bad(daemon);
  bad.say(Hello{});
  bad.attach();
  bad.hear<Attached>();
  const auto before = records();
  for (int i = 0; i < 100; ++i) {
    bad.attach();
    bad.hear<Attached>();
  }
  CHECK(records() == before);
  bad.say(Attach{.gpu = {{9}}, .total = gibibytes(1), .name = {}});
  CHECK(bad.is_dropped());
  await_status(daemon, [](const Json& json) { return json["tenants"].empty() && json["gpus"].empty(); });
}

TEST_CASE("Half-open connections do not delay other peers") {
  Daemon daemon;
  std::vector<std::unique_ptr<SocketClient>> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(std::make_unique<SocketClient>(daemon));
  SocketClient good(daemon);
  good.say(Hello{});
  CHECK(good.hear<Welcome>().session.value == 1);
}

TEST_CASE("All memory and leases of a killed process are free") {
  Daemon daemon;
  pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Channel channel;
    channel.connect(daemon.socket().c_str());
    channel.send(Message::of(Hello{}));
    channel.send(Message::of(Attach{.gpu = {{1}}, .total = gibibytes(1), .name = {}}));
    channel.send(Message::of(Usage{.request = 1, .use = use(mebibytes(900), {}), .stuck = 0}));
    for (;;) pause();
  }
  await_status(daemon, [](const Json& json) {
    return !json["tenants"].empty() && json["tenants"][0]["footprint_bytes"] == mebibytes(900).count;
  });
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  Json status = await_status(daemon, [](const Json& json) { return json["tenants"].empty(); });
  CHECK(status["gpus"].empty());  // the GPU was known only from that session
}

TEST_CASE("The number of moved bytes survives a restart of the arbiter, and each byte counts once") {
  Daemon daemon;
  const Traffic first{.evicted = mebibytes(30), .restored = mebibytes(10)};
  auto moved = [&](Bytes evicted) {
    return await_status(daemon, [&](const Json& json) {
      return !json["tenants"].empty() && json["tenants"][0]["evicted_bytes"] == evicted.count;
    })["tenants"][0]["restored_bytes"];
  };
  SocketClient client(daemon);
  client.say(Hello{});
  client.hear<Welcome>();
  client.attach();
  client.say(Usage{.request = 0, .use = {}, .stuck = 0, .moved = first});
  client.say(Usage{.request = 0, .use = {}, .stuck = 0, .moved = first});
  CHECK(moved(mebibytes(30)) == mebibytes(10).count);
  daemon.stop(SIGKILL);
  daemon.start();
  SocketClient again(daemon);
  Hello hello;
  hello.resuming = 1;
  again.say(hello);
  again.hear<Welcome>();
  again.attach();
  again.say(Usage{.request = 0, .use = {}, .stuck = 0, .moved = {.evicted = mebibytes(5), .restored = {}}});
  CHECK(moved(mebibytes(35)) == mebibytes(10).count);
}

TEST_CASE("Messages about a job or its settings are refused from other users") {
  Daemon daemon;
  if (getuid() != 0) {
    WARN("needs root to become other users");
    return;
  }
  RegisterJob job;
  job.step = {.job = 12, .step = 0};
  job.uid = 1234;
  job.options.memory = gibibytes(2);
  SocketClient root(daemon);
  root.say(job);
  CHECK(root.hear<RegisterReply>().accepted == 1);
  root.say(LeaseQuery{.step = {.job = 12, .step = 0}});
  CHECK(root.hear<LeaseReply>().known == 0);
  root.say(JobQuery{.job = 12});
  const JobReply told = root.hear<JobReply>();
  CHECK(told.job == 12);
  CHECK(told.known == 1);
  CHECK(told.lives == 0);
  root.say(JobQuery{.job = 13});
  CHECK(root.hear<JobReply>().known == 0);
  root.say(EndJob{.job = 12});
  CHECK(root.hear<EndJobReply>().accepted == 1);
  root.say(EndJob{.job = 13});
  CHECK(root.hear<EndJobReply>().accepted == 1);
  const SuspendJob suspension{.step = {.job = 12, .step = 0}, .suspended = 1};
  root.say(suspension);
  CHECK(root.hear<SuspendReply>().accepted == 1);
  RunToken token = new_run(root);
  SocketClient batch_system(daemon);
  RunRequest vouched;
  vouched.vouched = 1;
  vouched.uid = 4321;
  batch_system.say(vouched);
  const RunReply users = batch_system.hear<RunReply>();

  REQUIRE(chmod(daemon.folder().c_str(), 0755) == 0);
  pid_t child = fork();
  if (child == 0) {
    if (setuid(4321) != 0) _exit(9);
    auto ask = [&](const Message& question, Message& answer) {
      Channel channel;
      UniqueFd fd;
      return channel.connect(daemon.socket().c_str()) == 0 && channel.send(question) == 0 &&
             channel.receive(answer, fd) == 0;
    };
    Message answer;
    if (!ask(Message::of(job), answer) || answer.as<RegisterReply>().accepted != 0) _exit(1);
    if (!ask(Message::of(LeaseQuery{.step = {.job = 12, .step = 0}}), answer) ||
        answer.as<LeaseReply>().known != 0)
      _exit(2);
    if (!ask(Message::of(JobQuery{.job = 12}), answer) || answer.as<JobReply>().known != 0) _exit(8);
    if (!ask(Message::of(SetLines{.text = "Policy=fcfs\n"}), answer) ||
        answer.type != MessageType::set_reply || answer.as<SetReply>().done != 0)
      _exit(5);
    if (!ask(Message::of(suspension), answer) || answer.as<SuspendReply>().accepted != 0) _exit(6);
    if (!ask(Message::of(EndJob{.job = 12}), answer) || answer.as<EndJobReply>().accepted != 0) _exit(9);
    // A process of another user does not join a run, even if it has the run's token.
    if (!ask(Message::of(hello_of(token)), answer) || answer.type != MessageType::welcome) _exit(3);
    if (answer.as<Welcome>().tenant == TenantId{2}) _exit(4);
    // A run that an administrator starts for a user belongs to this user, who cannot start runs for others.
    if (!ask(Message::of(hello_of(users.token)), answer) || answer.type != MessageType::welcome) _exit(5);
    if (answer.as<Welcome>().tenant != users.tenant) _exit(6);
    if (!ask(Message::of(vouched), answer) || answer.type != MessageType::refused) _exit(7);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("An administrator changes policy and quantum beside a lease") {
  Daemon daemon;
  if (getuid() != 0) {
    WARN("needs root to change settings");
    return;
  }
  SocketClient anchor(daemon);
  SocketClient job(daemon);
  job.say(hello_of(new_run(anchor)));
  job.hear<Welcome>();
  job.attach();
  job.await_gate(true);
  CHECK(status_of(daemon)["policy"] == "round-robin");
  const auto set = [&](const SetLines& what) {
    SocketClient root(daemon);
    root.say(what);
    return root.hear<SetReply>().done != 0;
  };
  CHECK(set({.text = "Policy=credit\nQuantum=7s\n"}));
  Json status = status_of(daemon);
  CHECK(status["policy"] == "credit");
  CHECK(status["quantum_seconds"] == 7.0);
  CHECK(status["gpus"][0]["quantum_rule"] == "fixed");
  CHECK(job.open());
  CHECK(set({.text = "Policy=fcfs"}));
  CHECK(set({.text = "Quantum=auto"}));
  status = status_of(daemon);
  CHECK(status["policy"] == "fcfs");
  CHECK(status["gpus"][0]["quantum_rule"] == "work");
  for (const SetLines& bad :
       {SetLines{.text = "Policy=best"}, SetLines{.text = "Quantum=-1s"},
        SetLines{.text = "Socket=/elsewhere"}, SetLines{.text = "[gpu 7]\nPolicy=fcfs"}}) {
    SocketClient root(daemon);
    root.say(bad);
    CHECK(root.hear<Refused>().reason[0] != '\0');
  }
  CHECK(status_of(daemon)["policy"] == "fcfs");
  CHECK(job.open());
}

TEST_CASE("Two GPUs under two policies, in the file and as an administrator changes them") {
  if (getuid() != 0) {
    WARN("needs root to change settings");
    return;
  }
  const SimulatedGpus gpus;
  Daemon daemon("[gpu 1]\nPolicy=elastic\nQuantum=3s\n");
  const auto policies = [&] {
    std::map<int, std::pair<std::string, double>> of;
    const Json status = status_of(daemon);
    for (const Json& gpu : status["gpus"])
      of[gpu["number"].get<int>()] = {gpu["policy"].get<std::string>(), gpu["quantum_seconds"].get<double>()};
    return of;
  };
  using Policies = std::map<int, std::pair<std::string, double>>;
  CHECK(policies() == Policies{{0, {"round-robin", 1.0}}, {1, {"elastic", 3.0}}});

  const auto set = [&](const SetLines& what) {
    SocketClient root(daemon);
    root.say(what);
    CHECK(root.hear<SetReply>().done != 0);
  };
  // A changed setting of the node does not affect a GPU that has its own setting.
  set({.text = "Policy=credit\nQuantum=5s"});
  CHECK(policies() == Policies{{0, {"credit", 5.0}}, {1, {"elastic", 3.0}}});
  set({.text = "[gpu 1]\nPolicy=priority\n"});
  CHECK(policies() == Policies{{0, {"credit", 5.0}}, {1, {"priority", 3.0}}});
  set({.text = "[gpu 0-1]\nQuantum=2s\n"});
  CHECK(policies() == Policies{{0, {"credit", 2.0}}, {1, {"priority", 2.0}}});
  CHECK(status_of(daemon)["policy"] == "credit");
}

TEST_CASE("A user that connects again and again has to wait, and no other user has to") {
  Daemon daemon;
  if (getuid() != 0) {
    WARN("needs root to become other users");
    return;
  }
  REQUIRE(chmod(daemon.folder().c_str(), 0755) == 0);
  auto ask = [&] {
    Channel channel;
    Message answer;
    UniqueFd fd;
    return channel.connect(daemon.socket().c_str()) == 0 && channel.send(Message::of(Hello{})) == 0 &&
           channel.receive(answer, fd) == 0;
  };
  auto as = [&](uid_t uid, auto&& what) {
    const pid_t child = fork();
    if (child == 0) _exit(setuid(uid) == 0 && what() ? 0 : 1);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  };
  CHECK(as(4321, [&] {
    for (int asked = 0; asked < 20'000; ++asked)
      if (!ask()) return asked >= 1024;
    return false;
  }));
  CHECK(as(4322, ask));
  CHECK(ask());
  CHECK(as(4321, [&] {  // the arbiter soon notices that the child has exited
    for (int tries = 0; tries < 1000; ++tries, std::this_thread::sleep_for(10ms))
      if (ask()) return true;
    return false;
  }));
}

TEST_CASE("Ends and errors of the daemon") {
  Daemon daemon;
  auto run = [](const std::string& config) {
    pid_t child = fork();
    if (child == 0) {
      if (freopen("/dev/null", "w", stderr) == nullptr) _exit(126);
      execl(SHAREDGPUD, SHAREDGPUD, "--config", config.c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  CHECK(run(daemon.config()) == 0);  // ends at once, since another daemon serves this socket
  CHECK(run("/nonexistent.conf") == 2);
  std::string other = daemon.folder() + "/other.conf";
  std::ofstream(other) << "Socket=/proc/nowhere/s.sock\nStateDir=" << daemon.folder() << "/state2\n";
  CHECK(run(other) == 1);
  std::ofstream(other) << "Socket=" << daemon.folder() << "/two.sock\nStateDir=/proc/nowhere\n";
  CHECK(run(other) == 1);
  int status = daemon.stop(SIGTERM);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace sharedgpu
