// SPDX-License-Identifier: Apache-2.0
// Measures the arbiter's CPU use: starts a sharedgpud and simulated tenants that speak the protocol without
// a GPU. Each tenant fills more than half of the GPU and always wants to run, so the tenants take turns.
// Memory moves instantly.
//
//   bench_daemon --daemon build/arbiter/sharedgpud
//
// With --reports, measures the arbiter's cost of a report by a session. All tenants fit on eight GPUs. One
// tenant reports its memory, then that it wants the GPU, then that it is idle, and so on.
//
//   bench_daemon --daemon build/arbiter/sharedgpud --tenants 1000 --reports 20000
//
// With --scrapes, measures scrapes as Prometheus sees them: from the connection to an exporter, which asks
// the arbiter, until the last byte of the answer. The tenants have the same memory as with --reports.
//
//   bench_daemon --daemon build/arbiter/sharedgpud --exporter build/exporter/sharedgpu-exporter --tenants
//   1000 --scrapes 50
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "protocol/channel.h"
#include "protocol/environment.h"

using namespace sharedgpu;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr Bytes kTotal = gibibytes(80);
constexpr Bytes kFootprint = gibibytes(50);
constexpr Bytes kSmallFootprint = mebibytes(64);  // small enough for a thousand tenants on eight GPUs
constexpr unsigned kGpus = 8;

struct Options {
  std::string daemon;
  unsigned tenants = 100;
  double rate = 10;
  double seconds = 20;
  std::string policy = "round-robin";
  unsigned reports = 0;
  unsigned scrapes = 0;
  std::string exporter;
};

// CPU seconds that the process has used so far.
double used_seconds(pid_t pid) {
  double nanoseconds = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    double its = 0;
    if (!(std::ifstream(thread.path() / "schedstat") >> its))
      throw std::runtime_error("process " + std::to_string(pid) + " has ended");
    nanoseconds += its;
  }
  return nanoseconds / 1e9;
}

class Daemon {
 public:
  explicit Daemon(const Options& options) {
    char name[] = "/tmp/sharedgpu-bench-XXXXXX";
    if (mkdtemp(name) == nullptr) throw std::runtime_error("cannot create a folder in /tmp");
    folder_ = name;
    const std::string config = folder_ + "/sharedgpu.conf";
    std::ofstream(config) << "Socket=" << socket() << "\nStateDir=" << folder_
                          << "/state\nLogFile=" << folder_ << "/log\nPolicy=" << options.policy
                          << "\nQuantum=" << static_cast<int>(1000 / options.rate) << "ms\n";
    pid_ = fork();
    if (pid_ != 0) return;
    execl(options.daemon.c_str(), options.daemon.c_str(), "--config", config.c_str(),
          static_cast<char*>(nullptr));
    std::perror(options.daemon.c_str());
    _exit(127);
  }
  ~Daemon() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
    std::filesystem::remove_all(folder_);
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  std::string socket() const { return folder_ + "/sock"; }
  double used_seconds() const { return ::used_seconds(pid_); }

 private:
  std::string folder_;
  pid_t pid_ = 0;
};

class Peer {
 public:
  explicit Peer(const Daemon& daemon) {
    const auto end = Clock::now() + 10s;
    while (channel_.connect(daemon.socket().c_str()) != 0) {
      if (Clock::now() > end) throw std::runtime_error("the arbiter does not answer");
      std::this_thread::sleep_for(5ms);
    }
  }
  int fd() const { return channel_.fd(); }
  template <class Body>
  void say(const Body& body) {
    if (channel_.send(Message::of(body)) != 0) throw std::runtime_error("the arbiter closed the connection");
  }
  Message hear() {
    Message message;
    UniqueFd descriptor;
    if (channel_.receive(message, descriptor) != 0)
      throw std::runtime_error("the arbiter closed the connection");
    return message;
  }
  template <class Body>
  Body await() {
    for (;;)
      if (const Message message = hear(); message.type == Body::kType) return message.as<Body>();
  }

 private:
  Channel channel_;
};

// Acts as `sharedgpu run`, and as the session of its only process.
class Tenant {
 public:
  Tenant(const Daemon& daemon, unsigned gpu, Bytes footprint) : run_(daemon), session_(daemon) {
    run_.say(RunRequest{});
    Hello hello;
    hello.token = run_.await<RunReply>().token;
    session_.say(hello);
    session_.await<Welcome>();
    const auto first_byte = static_cast<unsigned char>(1 + gpu);
    session_.say(Attach{.gpu = GpuUuid{{first_byte}}, .total = kTotal, .name = "no GPU"});
    session_.await<Attached>();
    use_.swappable = footprint;
    session_.say(Usage{.request = 1, .use = use_});
  }
  int fd() const { return session_.fd(); }
  unsigned turns() const { return turns_; }

  // Sends `count` reports, and waits until they have been handled.
  void report(unsigned count) {
    for (unsigned i = 0; i < count; ++i) report_one(i);
    session_.say(MemoryQuery{.request = 1});
    session_.await<MemoryView>();
  }

  void obey() {
    const Message message = session_.hear();
    switch (message.type) {
      case MessageType::verdict:
        if (message.as<Verdict>().granted == 0)
          throw std::runtime_error("the arbiter refuses to let a tenant allocate");
        session_.say(Want{});
        break;
      case MessageType::restore: {
        const auto order = message.as<Restore>();
        use_.resident = std::min(use_.swappable, order.allowed);
        if (use_.resident != use_.swappable) return session_.say(Usage{.use = use_});
        ++turns_;
        return session_.say(Ready{.epoch = order.epoch, .use = use_});
      }
      case MessageType::revoke:
        return say_released(message.as<Revoke>().epoch, message.as<Revoke>().order);
      case MessageType::step:
        return say_released(message.as<Step>().epoch, message.as<Step>().order);
      case MessageType::evict:
        use_.resident = std::min(use_.resident, message.as<Evict>().allowed);
        return session_.say(Usage{.use = use_});
      default:
        break;
    }
  }

 private:
  // The reported memory changes a little from one Usage to the next.
  void report_one(unsigned number) {
    switch (number % 3) {
      case 0:
        use_.resident = use_.swappable = kSmallFootprint + mebibytes(2 * (number % 2));
        return session_.say(Usage{.use = use_});
      case 1:
        return session_.say(Want{});
      default:
        return session_.say(Idle{.epoch = {1}, .idle = std::chrono::milliseconds(1)});
    }
  }

  void say_released(Epoch epoch, std::uint64_t order) {
    session_.say(Released{.epoch = epoch, .order = order, .wants = 1, .use = use_});
  }

  Peer run_;
  Peer session_;
  MemoryUse use_;
  unsigned turns_ = 0;
};

void serve(std::vector<Tenant>& tenants, double seconds) {
  std::vector<pollfd> entries;
  for (const Tenant& tenant : tenants) entries.push_back({.fd = tenant.fd(), .events = POLLIN, .revents = 0});
  for (const auto end = Clock::now() + std::chrono::duration<double>(seconds); Clock::now() < end;) {
    poll(entries.data(), entries.size(), 10);
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (entries[i].revents != 0) tenants[i].obey();
  }
}

unsigned turns_of(const std::vector<Tenant>& tenants) {
  unsigned sum = 0;
  for (const Tenant& tenant : tenants) sum += tenant.turns();
  return sum;
}

void measure_reports(const Options& options) {
  const Daemon daemon(options);
  std::vector<Tenant> tenants;
  for (unsigned i = 0; i < options.tenants; ++i) tenants.emplace_back(daemon, i % kGpus, kSmallFootprint);
  tenants.front().report(1);
  const double used_before = daemon.used_seconds();
  tenants.front().report(options.reports);
  const double used = daemon.used_seconds() - used_before;
  std::printf("%s, %u tenants on %u GPUs: %.1f us a report\n", options.policy.c_str(), options.tenants, kGpus,
              1e6 * used / options.reports);
}

// An exporter that asks the daemon, and listens on a free port of this host.
class Exporter {
 public:
  Exporter(const std::string& program, const Daemon& daemon) {
    const UniqueFd probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    socklen_t size = sizeof address_;
    if (bind(probe.get(), reinterpret_cast<sockaddr*>(&address_), size) != 0 ||
        getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address_), &size) != 0)
      throw std::runtime_error("no port is free");
    setenv(environment::kSocket, daemon.socket().c_str(), 1);
    const std::string listen = "127.0.0.1:" + std::to_string(ntohs(address_.sin_port));
    pid_ = fork();
    if (pid_ != 0) return;
    execl(program.c_str(), program.c_str(), "--listen", listen.c_str(), static_cast<char*>(nullptr));
    std::perror(program.c_str());
    _exit(127);
  }
  ~Exporter() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  double used_seconds() const { return ::used_seconds(pid_); }
  // The whole answer; empty if the exporter does not listen yet, or does not answer. `headers`: more lines of
  // the request.
  std::string scrape(const std::string& headers) const {
    const UniqueFd peer(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(peer.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_) != 0) return {};
    const std::string request =
        "GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n" + headers + "\r\n";
    std::string answer;
    if (send(peer.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return {};
    char buffer[1 << 16];
    for (ssize_t size = 0; (size = recv(peer.get(), buffer, sizeof buffer, 0)) > 0;)
      answer.append(buffer, static_cast<std::size_t>(size));
    return answer;
  }

 private:
  sockaddr_in address_ = {
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  pid_t pid_ = 0;
};

void measure_scrapes(const Options& options) {
  const Daemon daemon(options);
  std::vector<Tenant> tenants;
  for (unsigned i = 0; i < options.tenants; ++i) tenants.emplace_back(daemon, i % kGpus, kSmallFootprint);
  const Exporter exporter(options.exporter, daemon);
  const auto end = Clock::now() + 10s;
  while (exporter.scrape("").empty()) {
    if (Clock::now() > end) throw std::runtime_error("the exporter does not answer");
    std::this_thread::sleep_for(5ms);
  }
  // The arbiter uses processor time even without scrapes, since it polls whether processes are stopped. This
  // time is subtracted from the time of the scrapes.
  const double quiet_before = daemon.used_seconds();
  std::this_thread::sleep_for(3s);
  const double quiet = (daemon.used_seconds() - quiet_before) / 3;
  for (const char* headers : {"", "Accept-Encoding: gzip\r\n"}) {
    const auto first = Clock::now();
    std::vector<double> times;
    std::size_t size = 0;
    const double daemon_before = daemon.used_seconds();
    const double exporter_before = exporter.used_seconds();
    for (unsigned i = 0; i < options.scrapes; ++i) {
      const auto begin = Clock::now();
      size = exporter.scrape(headers).size();
      times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
      std::this_thread::sleep_for(20ms);
    }
    std::sort(times.begin(), times.end());
    const double share = 1e3 / options.scrapes;
    const double polls = quiet * std::chrono::duration<double>(Clock::now() - first).count();
    std::printf(
        "%u tenants on %u GPUs, %s: %.2f MB; median %.1f ms, fastest %.1f ms, slowest %.1f ms; CPU time of "
        "the arbiter %.1f ms, of the exporter %.1f ms\n",
        options.tenants, kGpus, *headers == '\0' ? "plain" : "gzip", static_cast<double>(size) / 1e6,
        times[times.size() / 2], times.front(), times.back(),
        share * (daemon.used_seconds() - daemon_before - polls),
        share * (exporter.used_seconds() - exporter_before));
  }
}

void measure_turns(const Options& options) {
  const Daemon daemon(options);
  std::vector<Tenant> tenants;
  for (unsigned i = 0; i < options.tenants; ++i) tenants.emplace_back(daemon, 0, kFootprint);
  serve(tenants, 2);
  const double used_before = daemon.used_seconds();
  const unsigned turns_before = turns_of(tenants);
  const auto begin = Clock::now();
  serve(tenants, options.seconds);
  const double passed = std::chrono::duration<double>(Clock::now() - begin).count();
  const double used = daemon.used_seconds() - used_before;
  const unsigned turns = turns_of(tenants) - turns_before;
  if (turns == 0) throw std::runtime_error("no tenant had a turn");
  std::printf("%s, %u tenants, %.1f turns a second: %.2f%% of a core, %.0f us a turn\n",
              options.policy.c_str(), options.tenants, turns / passed, 100 * used / passed,
              1e6 * used / turns);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures the arbiter's use of a core while tenants without a GPU take turns.");
  app.add_option("--daemon", options.daemon, "path of sharedgpud")->required()->check(CLI::ExistingFile);
  app.add_option("--tenants", options.tenants)->check(CLI::Range(2, 1000))->capture_default_str();
  app.add_option("--rate", options.rate, "turns per second")
      ->check(CLI::Range(0.1, 1000.0))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "duration of the measurement")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--policy", options.policy)->capture_default_str();
  app.add_option("--reports", options.reports, "measure this many reports of memory instead of turns");
  app.add_option("--exporter", options.exporter, "path of sharedgpu-exporter")->check(CLI::ExistingFile);
  app.add_option("--scrapes", options.scrapes, "measure this many scrapes of an exporter instead of turns")
      ->needs("--exporter");
  CLI11_PARSE(app, argc, argv);
  try {
    if (options.scrapes > 0)
      measure_scrapes(options);
    else if (options.reports > 0)
      measure_reports(options);
    else
      measure_turns(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_daemon: %s\n", error.what());
    return 1;
  }
  return 0;
}
