// SPDX-License-Identifier: Apache-2.0
// Processes that keep a GPU from other tenants are told the reason and are ended.
#include "arbiter/daemon/cancellations.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "host.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

// Records each signal, and sends it.
struct Signals : FaultySystem {
  mutable std::vector<int> sent;
  int send_signal(int pidfd, int number) const override {
    sent.push_back(number);
    return FaultySystem::send_signal(pidfd, number);
  }
};

// A child process that ignores SIGTERM or ends on it. The constructor returns when the handler is set.
class SignalledChild {
 public:
  explicit SignalledChild(bool ignores_term) {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      std::signal(SIGTERM, ignores_term ? SIG_IGN : SIG_DFL);
      if (write(ready[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char byte = 0;
    REQUIRE(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~SignalledChild() {
    if (ended_) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  SignalledChild(const SignalledChild&) = delete;
  SignalledChild& operator=(const SignalledChild&) = delete;
  pid_t pid() const { return pid_; }
  // Returns the signal that ended the child; 0 while the child runs.
  int signal() {
    int status = 0;
    if (!ended_ && waitpid(pid_, &status, WNOHANG) == pid_) ended_ = WTERMSIG(status);
    return ended_.value_or(0);
  }

 private:
  pid_t pid_ = 0;
  std::optional<int> ended_;
};

// A connected peer, and the peer's end of the connection.
struct Connected {
  Connected(asio::io_context& loop, pid_t pid)
      : schedule(loop, kHostSystem), closer(loop, kHostSystem, schedule) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    channel = Channel(UniqueFd(ends[0]));
    Peer peer;
    peer.pid = pid;
    peer.uid = kUser;
    peer.started = start_time_of(kHostSystem, pid);
    peer.pidfd = kHostSystem.open_process(pid);
    client = std::make_shared<Client>(std::make_shared<Connection>(
        Connection::Parts{.loop = loop, .schedule = schedule, .closer = closer}, UniqueFd(ends[1]),
        std::move(peer), std::shared_ptr<Admission::Place>()));
    client->connection().start([](const Message&) {}, [](const std::string&) {});
  }
  std::string reason() {
    Message message;
    UniqueFd descriptor;
    if (channel.receive(message, descriptor) != 0 || message.type != MessageType::cancelled) return {};
    return message.as<Cancelled>().reason;
  }
  Schedule schedule;
  Closer closer;
  std::shared_ptr<Client> client;
  Channel channel;
};

// Runs the loop until the condition holds, for events that take real time.
void run_until(asio::io_context& loop, const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!holds()) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    loop.restart();
    loop.run_one_for(10ms);
  }
}

TEST_CASE("A process that is ended gets the reason before SIGTERM") {
  asio::io_context loop(1);
  SignalledChild child(false);
  Connected peer(loop, child.pid());
  const Signals system;
  Cancellations cancellations(loop, system, {.before_term = 1ms, .before_kill = 1h});
  cancellations.end(peer.client, "its job does not leave");
  CHECK(peer.reason() == "its job does not leave");
  CHECK(system.sent.empty());
  run_until(loop, [&] { return child.signal() != 0; });
  CHECK(child.signal() == SIGTERM);
}

TEST_CASE("A process that ignores SIGTERM gets SIGKILL, also when its connection is closed") {
  asio::io_context loop(1);
  SignalledChild child(true);
  Connected peer(loop, child.pid());
  const Signals system;
  Cancellations cancellations(loop, system, {.before_term = 1ms, .before_kill = 1ms});
  cancellations.end(peer.client, "");
  peer.client->connection().close({});
  peer.client.reset();
  run_until(loop, [&] { return child.signal() != 0; });
  CHECK(child.signal() == SIGKILL);
  CHECK(system.sent == std::vector{SIGTERM, SIGKILL});
}

TEST_CASE("A process with several sessions is ended once") {
  asio::io_context loop(1);
  SignalledChild child(true);
  Connected one(loop, child.pid()), other(loop, child.pid());
  const Signals system;
  Cancellations cancellations(loop, system, {.before_term = 1ms, .before_kill = 1ms});
  cancellations.end(one.client, "");
  cancellations.end(other.client, "");
  run_until(loop, [&] { return child.signal() != 0; });
  for (int i = 0; i < 10; ++i) loop.run_one_for(1ms);
  CHECK(system.sent == std::vector{SIGTERM, SIGKILL});
}

TEST_CASE("A process that has ended gets no second signal, and a failed signal has no consequences") {
  asio::io_context loop(1);
  SignalledChild child(false);
  Connected peer(loop, child.pid());
  Signals system;
  const bool may = GENERATE(true, false);
  if (!may) system.signals = EPERM;
  Cancellations cancellations(loop, system, {.before_term = 1ms, .before_kill = 1ms});
  cancellations.end(peer.client, "");
  const std::size_t most = may ? 2 : 1;  // the second signal fails, since the process has ended
  run_until(loop, [&] { return may ? child.signal() != 0 : !system.sent.empty(); });
  for (int i = 0; i < 10; ++i) loop.run_one_for(1ms);
  CHECK(system.sent.size() <= most);
  CHECK(child.signal() == (may ? SIGTERM : 0));
}

// ---- cancellation by the arbiter ----

// A session that holds the GPU, and a session of another tenant that waits for the GPU.
struct StandoffOfChild {
  StandoffOfChild(const SignalledChild& child, const System& system, Measure measure,
                  Bytes context = mebibytes(1))
      : host(settings_of(measure), system),
        holder(started(), kUser, {}, child.pid()),
        waiting(host, kUser + 1) {
    for (Guest* guest : {&holder, &waiting}) {
      REQUIRE(guest->say(Hello{}).find<Welcome>());
      REQUIRE(
          guest->say(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = "Test GPU"}).find<Attached>());
    }
    MemoryUse use{};
    use.swappable = mebibytes(800);
    use.context = context;
    if (context != Bytes{}) use.resident = use.swappable;
    REQUIRE(holder.say(Usage{.request = 1, .use = use}).find<Verdict>());
    use.resident = {};
    auto revoke = waiting.say(Usage{.request = 1, .use = use}).find<Revoke>();
    host.run_until([&] {
      if (!revoke) revoke = waiting.hear().find<Revoke>();
      return revoke.has_value();
    });
    waiting.say(
        Released{.epoch = revoke->epoch, .order = revoke->order, .wants = 1, .overuse = {}, .use = use});
  }
  static Settings settings_of(Measure measure) {
    Settings settings;
    settings.quantum = 10ms;
    settings.max_overuse = 1s;
    settings.on_overuse = measure;
    return settings;
  }
  Host& started() {
    host.start();
    return host;
  }
  nlohmann::json overdue() const { return host.status()["tenants"][0]["overdue"]; }
  // Returns true if the log has a line with this text.
  bool logs(const std::string& text) {
    for (const std::string& line : host.new_log_lines()) log += line + "\n";
    return log.find(text) != std::string::npos;
  }

  Host host;
  Guest holder, waiting;
  std::string log;
};

TEST_CASE("A tenant that does not release the GPU is logged with its user and process, and not ended") {
  SignalledChild child(false);
  const Signals system;
  StandoffOfChild at(child, system, Measure::warn);
  at.host.run_until([&] { return at.logs("(MaxOveruse)"); });
  CHECK(at.logs(", uid 4321, pid " + std::to_string(child.pid()) +
                ": has not released GPU 0 for 1 s since its turn ended, and others wait (MaxOveruse): "));
  CHECK(system.sent.empty());
  CHECK(child.signal() == 0);
}

TEST_CASE("A tenant that does not release the GPU is ended with a reason if the site has set this") {
  SignalledChild child(false);
  const Signals system;
  StandoffOfChild at(child, system, Measure::cancel);
  std::optional<Cancelled> cancelled;
  at.host.run_until([&] { return (cancelled = at.holder.hear().find<Cancelled>()).has_value(); });
  CHECK(std::string(cancelled->reason).find("has not released GPU 0 for 1 s") != std::string::npos);
  CHECK(child.signal() == 0);
  at.host.run_until([&] { return child.signal() != 0; });
  CHECK(child.signal() == SIGTERM);
  CHECK(at.logs(": was sent SIGTERM"));
  // The memory of the ended process is free, so the other tenant enters.
  at.host.run_until([&] { return at.waiting.hear().find<Restore>().has_value(); });
}

TEST_CASE("Others wait only a moment for a tenant that has nothing on the GPU and does not answer") {
  SignalledChild child(false);
  const Signals system;
  StandoffOfChild at(child, system, Measure::cancel, {});
  at.host.run_until([&] {
    const auto restore = at.waiting.hear().find<Restore>();
    // The 800 MiB include the memory that was granted to the tenant that does not answer.
    return restore && restore->allowed == mebibytes(800);
  });
  CHECK(at.logs(": does not answer, and has nothing on the GPU; its lease goes to others"));
  CHECK(at.host.status()["tenants"][0]["lease"] == false);
}

TEST_CASE("The status of an overdue tenant shows what the tenant has not done") {
  SignalledChild child(false);
  const Signals system;
  StandoffOfChild at(child, system, Measure::warn);
  at.host.run_until([&] { return at.overdue().is_object(); });
  CHECK(at.overdue()["gpu"] == "GPU-01000000-0000-0000-0000-000000000000");
  SECTION("read that its turn is over") { CHECK(at.overdue()["waits_for"] == "answer"); }
  SECTION("finish its work") {
    at.holder.hear();
    CHECK(at.overdue()["waits_for"] == "work");
  }
  SECTION("go on, being stopped") {
    at.holder.hear();
    kill(child.pid(), SIGSTOP);
    at.host.run_until([&] { return at.overdue()["waits_for"] == "stopped"; });
  }
}

}  // namespace
}  // namespace sharedgpu::test
