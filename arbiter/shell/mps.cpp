// SPDX-License-Identifier: Apache-2.0
#include "arbiter/shell/mps.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "arbiter/shell/log.h"

namespace sharedgpu {
namespace {

constexpr char kDaemon[] = "nvidia-cuda-mps-control";
constexpr std::chrono::seconds kLongestPause{60};
constexpr std::chrono::minutes kLivedLong{1};

UniqueFd open_pid(pid_t pid) { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

// The kernel keeps 15 characters of a name.
bool is_the_daemon(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  return std::getline(file, name) && name == std::string(kDaemon).substr(0, 15);
}

// This process's environment with `changes` in it.
std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  std::vector<std::string> all = changes;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name = std::string_view(*entry).substr(0, std::string_view(*entry).find('=') + 1);
    if (std::none_of(changes.begin(), changes.end(),
                     [&](const std::string& change) { return change.starts_with(name); }))
      all.emplace_back(*entry);
  }
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Mps::Mps(asio::io_context& loop, std::string folder, std::string logs)
    : folder_(std::move(folder)), logs_(std::move(logs)), death_(loop), timer_(loop) {}

bool Mps::serves() const { return death_.is_open() && access((folder_ + "/control").c_str(), F_OK) == 0; }

void Mps::start() {
  for (const auto& [folder, mode] : {std::pair(&folder_, 0755), std::pair(&logs_, 0700)})
    if (mkdir(folder->c_str(), static_cast<mode_t>(mode)) != 0 && errno != EEXIST)
      log::error("Mps: " + *folder + ": " + std::strerror(errno));
  began_ = std::chrono::steady_clock::now();
  if (UniqueFd running = find()) {
    log::info("Mps: the control daemon of an arbiter before is there");
    return watch(std::move(running));
  }
  if (UniqueFd launched = launch()) return watch(std::move(launched));
  ended();
}

UniqueFd Mps::find() const {
  std::ifstream file(folder_ + "/" + kDaemon + ".pid");
  pid_t pid = 0;
  if (!(file >> pid) || pid <= 0) return {};
  UniqueFd process = open_pid(pid);
  return process && is_the_daemon(pid) ? std::move(process) : UniqueFd();
}

UniqueFd Mps::launch() {
  std::vector<std::string> words = {kDaemon, "-f", "-M"};
  std::vector<std::string> environment =
      environment_with({"CUDA_MPS_PIPE_DIRECTORY=" + folder_, "CUDA_MPS_LOG_DIRECTORY=" + logs_});
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  const std::string output = logs_ + "/control.out";
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  // What the arbiter ignores and in whose terminal it runs is not its own.
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF);
  const int error = posix_spawnp(&child_, kDaemon, &files, &attributes, pointers_to(words).data(),
                                 pointers_to(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    log::error("Mps: " + words.front() + ": " + std::strerror(error));
    child_ = -1;
    return {};
  }
  log::info("Mps: " + words.front() + " started, pid " + std::to_string(child_));
  return open_pid(child_);
}

void Mps::watch(UniqueFd process) {
  death_.assign(process.release());
  death_.async_wait(asio::posix::descriptor_base::wait_read, [this](const asio::error_code& error) {
    if (error) return;
    death_.close();
    int status = 0;
    std::string how = "has ended";
    if (child_ > 0 && waitpid(child_, &status, WNOHANG) == child_)
      how += WIFEXITED(status) ? " with status " + std::to_string(WEXITSTATUS(status))
                               : " by signal " + std::to_string(WTERMSIG(status));
    child_ = -1;
    log::error("Mps: the control daemon " + how + "; see " + logs_);
    ended();
  });
}

// One that ends at once is started ever more rarely. Meanwhile what starts runs without.
void Mps::ended() {
  if (std::chrono::steady_clock::now() - began_ >= kLivedLong) pause_ = std::chrono::seconds(1);
  timer_.expires_after(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error) start();
  });
}

}  // namespace sharedgpu
