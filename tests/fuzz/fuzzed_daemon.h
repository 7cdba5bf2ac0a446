// SPDX-License-Identifier: Apache-2.0
// A whole arbiter in the fuzzer's process, on a fake host, and functions that connect peers to the arbiter.
//
// Used by one thread only.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arbiter/daemon/arbiter.h"
#include "arbiter/daemon/server.h"
#include "arbiter/daemon/survey_child.h"
#include "fake_host.h"
#include "input.h"

namespace sharedgpu::fuzz {

using namespace std::chrono_literals;

inline constexpr uid_t kHonestUser = 1010;
inline constexpr std::uint32_t kHonestJob = 99;
inline constexpr GpuUuid kGpus[] = {{{1}}, {{2}}};

inline std::uint64_t messages = 0;  // number of messages that all peers have sent

// A folder on a tmpfs, for the socket and the ledger.
inline const std::string& folder() {
  static const std::string path = "/dev/shm/sgpu-fuzz." + std::to_string(getpid());
  return path;
}

class Daemon {
 public:
  explicit Daemon(FakeHost& its) : host(its) {
    settings.socket = folder() + "/s.sock";
    settings.state_dir = folder();
    settings.slurm_user = "slurm";
    settings.memory_reserve = {.bytes = {}, .percent = 0};
    settings.max_overuse = 10s;
    settings.on_overuse = Measure::cancel;
    settings.unmanaged = Measure::cancel;
    settings.tenants = TenantKind::any;
    setenv("SLURMD_NODENAME", "n0", 1);  // without this variable, the arbiter would run scontrol
  }
  ~Daemon() { stop(); }

  // Returns false if the arbiter cannot start because system calls of the fake host fail.
  bool start() {
    stop();
    loop_.emplace(1);
    schedule_.emplace(*loop_, host);
    closer_.emplace(*loop_, host, *schedule_);
    arbiter.emplace(*loop_, *schedule_, host, settings, std::make_unique<FakeDisk>(host));
    std::vector<GpuInfo> gpus;
    for (const GpuUuid& gpu : kGpus) gpus.push_back({.uuid = gpu, .total = gibibytes(1), .name = "Test GPU"});
    if (!arbiter->start(gpus).ok()) return false;
    UniqueFd listener;
    require(listen_at(settings.socket.c_str(), listener) == 0, "no socket to listen at");
    constexpr std::size_t kPlaces = 64;
    server_.emplace(Connection::Parts{.loop = *loop_, .schedule = *schedule_, .closer = *closer_}, host,
                    *arbiter, kPlaces);
    server_->start(std::move(listener));
    return true;
  }
  // Ends the arbiter as if its process were killed: no peer gets a message.
  void stop() {
    server_.reset();
    arbiter.reset();
    closer_.reset();
    schedule_.reset();
    loop_.reset();
  }
  // Runs all handlers that are ready at this time.
  void run() {
    loop_->restart();
    while (loop_->poll() > 0) {
    }
  }

  FakeHost& host;
  Settings settings;
  std::optional<Arbiter> arbiter;

 private:
  std::optional<asio::io_context> loop_;
  std::optional<Schedule> schedule_;
  std::optional<Closer> closer_;
  std::optional<Server> server_;
};

// Answers the arbiter's request to the survey's child: only process `pid` has memory on a GPU. Returns false
// if the arbiter has sent no request.
inline bool answer_survey(const FakeHost& host, pid_t pid, Bytes its) {
  char question;
  if (host.survey() < 0 || recv(host.survey(), &question, 1, MSG_DONTWAIT) != 1) return false;
  using Kind = SurveyLine::Kind;
  const Bytes all = gibibytes(1);
  const SurveyLine lines[] = {
      {.kind = Kind::gpu, .gpu = kGpus[0], .used = its.count, .free = minus(all, its).count},
      {.kind = Kind::process, .pid = static_cast<std::uint32_t>(pid), .used = its.count},
      {.kind = Kind::gpu, .gpu = kGpus[1], .free = all.count},
      {.kind = Kind::end}};
  return ::send(host.survey(), lines, sizeof lines, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

// Returns a socket that the arbiter attributes to the process; empty if the arbiter's queue of connections is
// full.
inline UniqueFd connect(const std::string& path, pid_t pid) {
  const auto address_of = [](const std::string& name, sockaddr_un& address) {
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, sizeof address.sun_path);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  };
  sockaddr_un ours = {};
  sockaddr_un theirs = {};
  const socklen_t size = address_of(FakeHost::address_of(pid), ours);
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  require(bind(socket.get(), reinterpret_cast<const sockaddr*>(&ours), size) == 0, "no address for a peer");
  address_of(path, theirs);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&theirs), sizeof theirs) != 0) socket.reset();
  return socket;
}

inline std::string cgroup_of(std::uint32_t job, const std::string& step) {
  return "0::/system.slice/slurmstepd.scope/job_" + std::to_string(job) + "/step_" + step + "/user/task_0\n";
}

}  // namespace sharedgpu::fuzz
