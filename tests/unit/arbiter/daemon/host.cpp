// SPDX-License-Identifier: Apache-2.0
#include "host.h"

#include <sys/socket.h>
#include <sys/syscall.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <fstream>

#include "arbiter/daemon/log.h"
#include "arbiter/daemon/peers.h"
#include "arbiter/daemon/processes.h"

template class nlohmann::basic_json<>;

namespace sharedgpu::test {

Host::Host(const Settings& changes, const System& its) : system(its) {
  setenv("SLURMD_NODENAME", "n0", 1);  // otherwise the arbiter queries Slurm for the node's name
  settings = changes;
  settings.socket = folder.path + "/s.sock";
  settings.state_dir = folder.path;
  settings.slurm_user = "0";
  settings.memory_reserve = {.bytes = {}, .percent = 0};
  REQUIRE(log::open("warning", log_path()).ok());
  make();
}

Host::~Host() {
  unsetenv("SLURMD_NODENAME");
  if (arbiter) run();  // queued handlers release closed connections
  arbiter.reset();
  static_cast<void>(log::open("off", {}));
}

void Host::start() {
  start_keeping_log();
  new_log_lines();
}

void Host::start_keeping_log() { REQUIRE(arbiter->start(gpus).ok()); }

void Host::restart() {
  restart_keeping_log();
  new_log_lines();
}

void Host::restart_keeping_log() {
  make();
  start_keeping_log();
}

void Host::run() {
  loop->restart();
  while (loop->poll() > 0) {
  }
}

void Host::run_until(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (run(); !holds(); run()) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    loop->restart();
    loop->run_one_for(std::chrono::milliseconds(10));
  }
}

nlohmann::json Host::status() const { return nlohmann::json::parse(arbiter->status()); }

std::vector<std::string> Host::ledger() const {
  std::ifstream file(folder.path + "/ledger");
  std::vector<std::string> records;
  for (std::string line; std::getline(file, line);) {
    for (int word = 0; word < 2; ++word) line.erase(0, line.find(' ') + 1);
    records.push_back(line);
  }
  return records;
}

std::vector<std::string> Host::new_log_lines() {
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

void Host::make() {
  arbiter.reset();
  closer.reset();
  loop.emplace(1);
  schedule.emplace(*loop, system);
  closer.emplace(*loop, system, *schedule);
  arbiter.emplace(*loop, *schedule, system, settings, std::make_unique<FileCalls>(),
                  make_mail ? make_mail() : nullptr);
}

Guest::Guest(Host& host, uid_t uid, std::optional<StepName> step, pid_t pid, std::optional<uid_t> account)
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
  peer.account = account.value_or(uid);
  host_.arbiter->serve(std::make_shared<Connection>(host_.parts(), UniqueFd(ends[1]), std::move(peer),
                                                    std::shared_ptr<Admission::Place>()));
}

Guest::Reaction Guest::say(const Message& message, int descriptor) {
  // A child process that the arbiter has just forked holds a copy of each connection until it calls exec().
  // So a peer may notice only when it sends that the arbiter has closed the connection.
  const int error = channel.send(message, descriptor);
  if (error == EPIPE) return {.answers = {}, .closed = true};
  REQUIRE(error == 0);
  return hear();
}

Guest::Reaction Guest::hear() {
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

}  // namespace sharedgpu::test
