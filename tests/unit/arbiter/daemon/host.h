// SPDX-License-Identifier: Apache-2.0
// An arbiter in the test's own process, on an event loop that the test runs, and peers of the arbiter. A peer
// may belong to any user. Tests can read the arbiter's log.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <csignal>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "arbiter/daemon/arbiter.h"
#include "arbiter/daemon/system.h"
#include "protocol/channel.h"
#include "systems.h"

extern template class nlohmann::basic_json<>;  // defined in host.cpp, since it takes long to compile

namespace sharedgpu::test {

inline constexpr GpuUuid kHostGpu{{1}};
inline constexpr uid_t kUser = 4321;  // a user without special rights

// Settings with which users see no tenants of other users.
inline Settings hiding_jobs() {
  Settings settings;
  settings.private_data = PrivateData::jobs;
  return settings;
}

inline MemoryUse use(Bytes swappable, Bytes resident) {
  return {.swappable = swappable, .resident = resident, .pinned = {}, .context = {}, .host = {}};
}

class Host {
 public:
  explicit Host(const Settings& changes = {}, const System& its = kHostSystem);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  void start();
  void start_keeping_log();
  // The arbiter dies with all connections, and a new arbiter starts.
  void restart();
  void restart_keeping_log();
  // Runs all handlers that are ready.
  void run();
  // Runs the loop until the condition holds, for events that take real time.
  void run_until(const std::function<bool()>& holds);
  Connection::Parts parts() { return {.loop = *loop, .schedule = *schedule, .closer = *closer}; }
  nlohmann::json status() const;
  // The records in the ledger, without checksum and time.
  std::vector<std::string> ledger() const;
  // The lines logged since the last call, without their time and the daemon's name; "N" stands for this
  // process's pid.
  std::vector<std::string> new_log_lines();

  const System& system;
  TemporaryFolder folder;
  Settings settings;
  std::vector<GpuInfo> gpus{{.uuid = kHostGpu, .total = gibibytes(1), .name = "Test GPU"}};  // the GPUs that
                                                                                             // the arbiter
                                                                                             // finds at each
                                                                                             // start
  std::function<std::unique_ptr<Mail>()>
      make_mail;  // creates the Mail of each arbiter that is started later; empty: the arbiter has no Mail
  std::optional<asio::io_context> loop;
  std::optional<Schedule> schedule;
  std::optional<Closer> closer;
  std::optional<Arbiter> arbiter;

 private:
  void make();
  std::string log_path() const { return folder.path + "/log"; }
  std::streamoff log_read_ = 0;
};

// A process that sleeps until it is killed or the scope ends.
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

// One connection to the arbiter, as any user and process.
class Guest {
 public:
  explicit Guest(Host& host, uid_t uid = 0, std::optional<StepName> step = {}, pid_t pid = getpid(),
                 std::optional<uid_t> account = {});

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
  Reaction say(const Message& message, int descriptor = -1);
  template <class Body>
  Reaction say(const Body& body) {
    return say(Message::of(body));
  }
  Reaction hear();

  Channel channel;
  UniqueFd last_descriptor;

 private:
  Host& host_;
};

}  // namespace sharedgpu::test
