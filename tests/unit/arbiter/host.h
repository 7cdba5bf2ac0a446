// SPDX-License-Identifier: Apache-2.0
// An arbiter in the test's own process, on a loop that runs when the test says so, and peers of it that may
// be any user's. What the arbiter logs is read back.
#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "arbiter/daemon/arbiter.h"
#include "arbiter/daemon/log.h"
#include "arbiter/daemon/peers.h"
#include "arbiter/daemon/processes.h"
#include "arbiter/daemon/system.h"
#include "protocol/channel.h"
#include "systems.h"

namespace sharedgpu::test {

inline constexpr GpuUuid kHostGpu{{1}};
inline constexpr uid_t kUser = 4321;  // administers nothing

class Host {
 public:
  explicit Host(const Settings& changes = {}, const System& its = kHostSystem) : system(its) {
    settings = changes;
    settings.socket = folder.path + "/s.sock";
    settings.state_dir = folder.path;
    settings.slurm_user = "0";
    settings.memory_reserve = {.bytes = {}, .percent = 0};
    REQUIRE(log::open("warning", log_path()).ok());
    make();
  }
  ~Host() {
    if (arbiter) run();  // connections that have closed let go of each other
    arbiter.reset();
    static_cast<void>(log::open("off", {}));
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  void start() {
    start_keeping_log();
    new_log_lines();
  }
  void start_keeping_log() { REQUIRE(arbiter->start(gpus).ok()); }
  // The arbiter dies, and with it all connections; another one comes.
  void restart() {
    restart_keeping_log();
    new_log_lines();
  }
  void restart_keeping_log() {
    make();
    start_keeping_log();
  }
  // Does all that can be done without waiting.
  void run() {
    loop->restart();
    while (loop->poll() > 0) {
    }
  }
  // Goes on until it holds: what takes time of its own, but must happen.
  void run_until(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (run(); !holds(); run()) {
      REQUIRE(std::chrono::steady_clock::now() < end);
      loop->restart();
      loop->run_one_for(std::chrono::milliseconds(10));
    }
  }
  Connection::Parts parts() { return {.loop = *loop, .schedule = *schedule, .closer = *closer}; }
  nlohmann::json status() const { return nlohmann::json::parse(arbiter->status()); }
  // The records in the ledger, without checksum and time.
  std::vector<std::string> ledger() const {
    std::ifstream file(folder.path + "/ledger");
    std::vector<std::string> records;
    for (std::string line; std::getline(file, line);) {
      for (int word = 0; word < 2; ++word) line.erase(0, line.find(' ') + 1);
      records.push_back(line);
    }
    return records;
  }
  // The lines logged since the last call, without their time and the daemon's name; "N" stands for this
  // process's number.
  std::vector<std::string> new_log_lines() {
    std::ifstream file(log_path());
    file.seekg(log_read_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) {
      log_read_ += static_cast<std::streamoff>(line.size()) + 1;
      line.erase(0, line.find("sharedgpud: ") + 12);
      const std::string pid = std::to_string(getpid());
      for (std::size_t at = line.find(pid); at != std::string::npos; at = line.find(pid))
        line.replace(at, pid.size(), "N");
      lines.push_back(line);
    }
    return lines;
  }

  const System& system;
  TemporaryFolder folder;
  Settings settings;
  std::vector<GpuInfo> gpus{{.uuid = kHostGpu, .total = gibibytes(1), .name = "Test GPU"}};  // at each start
  std::function<std::unique_ptr<Mail>()> make_mail;  // at each start from then on; none: there is none
  std::optional<asio::io_context> loop;
  std::optional<Schedule> schedule;
  std::optional<Closer> closer;
  std::optional<Arbiter> arbiter;

 private:
  void make() {
    arbiter.reset();
    closer.reset();
    loop.emplace(1);
    schedule.emplace(*loop, system);
    closer.emplace(*loop, system, *schedule);
    arbiter.emplace(*loop, *schedule, system, settings, std::make_unique<FileCalls>(),
                    make_mail ? make_mail() : nullptr);
  }
  std::string log_path() const { return folder.path + "/log"; }
  std::streamoff log_read_ = 0;
};

// A process that sleeps, until it or the scope ends.
class Process {
 public:
  Process() : pid_(fork()) {
    if (pid_ == 0)
      for (;;) pause();
  }
  ~Process() { end(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// One connection to the arbiter, as whatever user and process.
class Guest {
 public:
  explicit Guest(Host& host, uid_t uid = 0, std::optional<StepName> step = {}, pid_t pid = getpid())
      : host_(host) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    channel = Channel(UniqueFd(ends[0]));
    Peer peer;
    peer.pid = pid;
    peer.uid = uid;
    peer.started = start_time_of(host.system, pid);
    peer.program = program_of(host.system, pid);
    peer.names = pid_names_of(host.system, pid);
    peer.pidfd.reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    peer.step = step;
    peer.account = uid;
    host_.arbiter->serve(std::make_shared<Connection>(host_.parts(), UniqueFd(ends[1]), std::move(peer),
                                                      std::shared_ptr<Admission::Place>()));
  }

  // The arbiter's reaction to a message: its answers, and whether it closes the connection.
  struct Reaction {
    std::vector<Message> answers;
    bool closed = false;

    template <class Body>
    std::optional<Body> find() const {
      for (const Message& message : answers)
        if (message.type == Body::kType) return message.as<Body>();
      return std::nullopt;
    }
  };
  Reaction say(const Message& message, int descriptor = -1) {
    REQUIRE(channel.send(message, descriptor) == 0);
    return hear();
  }
  template <class Body>
  Reaction say(const Body& body) {
    return say(Message::of(body));
  }
  Reaction hear() {
    host_.run();
    Reaction reaction;
    for (;;) {
      Message message;
      UniqueFd descriptor;
      const int error = channel.receive(message, descriptor);
      if (error == EAGAIN || error == EWOULDBLOCK) return reaction;
      if (error != 0) {
        reaction.closed = error == ECONNRESET;
        return reaction;
      }
      reaction.answers.push_back(message);
      if (descriptor) last_descriptor = std::move(descriptor);
    }
  }

  Channel channel;
  UniqueFd last_descriptor;

 private:
  Host& host_;
};

}  // namespace sharedgpu::test
