// SPDX-License-Identifier: Apache-2.0
// An arbiter in the test's own process, on a loop that runs when the test says so, and peers of it that may
// be any user's. What the arbiter logs is read back.
#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <fstream>
#include <memory>
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
    REQUIRE(log::open("warning", log_path()).empty());
    arbiter.emplace(loop, system, settings);
  }
  ~Host() {
    arbiter.reset();
    log::open("off", {});
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  void start() {
    REQUIRE(arbiter->start({{.uuid = kHostGpu, .total = gibibytes(1), .name = "Test GPU"}}).ok());
    new_log_lines();
  }
  // The arbiter dies, and another one comes.
  void restart() {
    arbiter.reset();
    loop.restart();
    loop.poll();  // what waited for it is told that it is gone
    arbiter.emplace(loop, system, settings);
    start();
  }
  // Does all that can be done without waiting.
  void run() {
    loop.restart();
    while (loop.poll() > 0) {
    }
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
  asio::io_context loop{1};
  std::optional<Arbiter> arbiter;

 private:
  std::string log_path() const { return folder.path + "/log"; }
  std::streamoff log_read_ = 0;
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
    peer.pidfd.reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    peer.step = step;
    host_.arbiter->serve(std::make_shared<Connection>(host_.loop, UniqueFd(ends[1]), std::move(peer),
                                                      std::shared_ptr<void>()));
  }

  // What the arbiter makes of the message: its answers, and whether it closes the connection.
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
