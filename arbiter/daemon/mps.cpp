// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/mps.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "arbiter/daemon/folders.h"
#include "arbiter/daemon/log.h"
#include "arbiter/daemon/watched.h"
#include "protocol/split.h"

namespace sharedgpu {
namespace {

constexpr char kDaemon[] = "nvidia-cuda-mps-control";
constexpr std::chrono::milliseconds kLook{100};
constexpr std::chrono::seconds kLongestPause{60};
constexpr std::chrono::minutes kLivedLong{1};

// Returns true if the process is a control daemon. Checks all words of the command line, because the control
// daemon may be a script that an interpreter runs. A zombie has no command line.
bool is_the_daemon(const System& system, pid_t pid) {
  std::string words;
  static_cast<void>(system.read_file("/proc/" + std::to_string(pid) + "/cmdline", words));
  for (const std::string_view word : split(words, '\0'))
    if (word.substr(word.rfind('/') + 1) == kDaemon) return true;
  return false;
}

// This process's environment with `changes` applied.
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

Mps::Mps(asio::io_context& loop, const System& system, std::string folder, std::string logs,
         std::function<void()> changed)
    : system_(system),
      folder_(std::move(folder)),
      logs_(std::move(logs)),
      changed_(std::move(changed)),
      death_(loop),
      timer_(loop) {}

// Sets the modes of the folders even if they exist: users need access to `folder_`, and must not have access
// to `logs_`.
void Mps::start() {
  for (const auto& [folder, mode] : {std::pair(&folder_, mode_t{0755}), std::pair(&logs_, mode_t{0700})})
    if (Status made = make_folder(*folder, mode); !made.ok())
      log::error("Mps: " + made.message());
    else if (chmod(folder->c_str(), mode) != 0)
      log::error("Mps: cannot change the mode of " + *folder + ": " + std::strerror(errno));
  began_ = std::chrono::steady_clock::now();
  const bool runs_unwatched = child_ > 0 && waitpid(child_, nullptr, WNOHANG) == 0;
  if (runs_unwatched) {
    if (UniqueFd process = system_.open_process(child_)) return watch(std::move(process));
    return ended();
  }
  if (UniqueFd running = find(system_, folder_)) {
    log::info("Mps: uses the control daemon that an earlier arbiter started");
    return watch(std::move(running));
  }
  if (UniqueFd launched = launch()) return watch(std::move(launched));
  ended();
}

UniqueFd Mps::find(const System& system, const std::string& folder) {
  std::ifstream file(folder + "/" + kDaemon + ".pid");
  pid_t pid = 0;
  if (!(file >> pid) || pid <= 0) return {};
  UniqueFd process = system.open_process(pid);
  return process && is_the_daemon(system, pid) ? std::move(process) : UniqueFd();
}

UniqueFd Mps::open_output() const {
  const std::string path = logs_ + "/control.out";
  UniqueFd output(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (output) return output;
  log::error("Mps: cannot open " + path + ": " + std::strerror(errno));
  return UniqueFd(open("/dev/null", O_WRONLY | O_CLOEXEC));
}

UniqueFd Mps::launch() {
  // Removes the files of a dead control daemon, since programs would take them for files of the new control
  // daemon.
  for (const char* left : {"/control", "/nvidia-cuda-mps-control.pid"}) unlink((folder_ + left).c_str());
  const UniqueFd output = open_output();
  std::vector<std::string> words = {kDaemon, "-f", "-M"};
  std::vector<std::string> environment =
      environment_with({"CUDA_MPS_PIPE_DIRECTORY=" + folder_, "CUDA_MPS_LOG_DIRECTORY=" + logs_});
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_adddup2(&files, output.get(), stream);
  // The control daemon must inherit neither the arbiter's ignored signals nor its terminal.
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF);
  const mode_t before = umask(022);  // users need access to the control daemon's pipes
  const int error = posix_spawnp(&child_, kDaemon, &files, &attributes, pointers_to(words).data(),
                                 pointers_to(environment).data());
  umask(before);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    log::error("Mps: cannot start " + words.front() + ": " + std::strerror(error));
    child_ = -1;
    return {};
  }
  log::info("Mps: " + words.front() + " started, pid " + std::to_string(child_));
  return system_.open_process(child_);
}

void Mps::watch(UniqueFd process) {
  if (const asio::error_code failure = hand_over(process, death_)) {
    log::error("Mps: the control daemon cannot be watched: " + failure.message());
    return ended();
  }
  watch_pipe();
  await_death(death_, [this] {
    death_.close();
    timer_.cancel();
    set_serves(false);
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

// Waits for the pipe by which programs find the control daemon. The control daemon creates the pipe some time
// after its start.
void Mps::watch_pipe() {
  if (access((folder_ + "/control").c_str(), F_OK) == 0) return set_serves(true);
  timer_.expires_after(kLook);
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error && death_.is_open()) watch_pipe();
  });
}

void Mps::set_serves(bool serves) {
  if (std::exchange(serves_, serves) != serves) changed_();
}

// Restarts the control daemon after a pause, which grows if the control daemon fails repeatedly. Programs
// that start during the pause run without MPS.
void Mps::ended() {
  if (std::chrono::steady_clock::now() - began_ >= kLivedLong) pause_ = std::chrono::seconds(1);
  timer_.expires_after(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error) start();
  });
}

}  // namespace sharedgpu
