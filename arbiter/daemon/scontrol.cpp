// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/scontrol.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "arbiter/daemon/log.h"
#include "arbiter/daemon/watched.h"

namespace sharedgpu {
namespace {

constexpr std::size_t kMostWaiting = 1024;

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

Scontrol::Scontrol(asio::io_context& loop, const System& system, std::chrono::milliseconds timeout)
    : system_(system), patience_(timeout), death_(loop), timeout_(loop) {}

// What Slurm is being told it may be told to the end.
Scontrol::~Scontrol() = default;

std::string Scontrol::node_name() {
  if (const char* name = std::getenv("SLURMD_NODENAME"); name != nullptr && *name != '\0') return name;
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return {};
  const std::string_view whole(name.data());
  return std::string(whole.substr(0, whole.find('.')));
}

void Scontrol::drain_node(const std::string& reason) {
  add({.words = {"scontrol", "update", "nodename=" + node_name(), "state=DRAIN", "reason=" + reason},
       .tell = {}});
}

// One that has ended right, a moment before, stays so.
void Scontrol::requeue(std::uint32_t job) {
  add({.words = {"sh", "-c",
                 "scontrol -o show job \"$0\" | grep -Eq 'JobState=COMPLET(ED|ING) .*ExitCode=0:0' || "
                 "exec scontrol requeue \"$0\"",
                 std::to_string(job)},
       .tell = {}});
}

void Scontrol::find_address(const std::string& node, std::function<void(const std::string&)> found) {
  add({.words = {"sh", "-c", "scontrol -o show node \"$0\" | sed -n 's/.* NodeAddr=\\([^ ]*\\).*/\\1/p'",
                 node},
       .tell = [found = std::move(found)](const std::string& printed) {
         found(printed.substr(0, printed.find('\n')));
       }});
}

void Scontrol::add(Command command) {
  if (waiting_.size() >= kMostWaiting) return log::error("not run, too many wait: " + joined(command.words));
  waiting_.push_back(std::move(command));
  if (waiting_.size() == 1) run_next();
}

void Scontrol::run_next() {
  while (!waiting_.empty() && !launch(waiting_.front())) waiting_.pop_front();
}

bool Scontrol::launch(Command& command) {
  Words& words = command.words;
  printed_ = command.tell ? system_.memory_file("scontrol") : UniqueFd();
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO})
    posix_spawn_file_actions_addopen(&files, stream, "/dev/null", O_RDWR, 0);
  if (printed_) posix_spawn_file_actions_adddup2(&files, printed_.get(), STDOUT_FILENO);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF);
  const int error = posix_spawnp(&child_, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    child_ = -1;
    log::error(joined(words) + ": " + std::strerror(error));
    return false;
  }
  command.tell ? log::debug("runs " + joined(words)) : log::info("runs " + joined(words));
  UniqueFd pidfd = system_.open_process(child_);
  if (!pidfd || hand_over(pidfd, death_)) {
    log::error(joined(words) + ": cannot be watched, and is ended");
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
    return false;
  }
  death_.async_wait(asio::posix::descriptor_base::wait_read, [this](const asio::error_code& failure) {
    if (!failure) ended();
  });
  timeout_.expires_after(patience_);
  timeout_.async_wait([this](const asio::error_code& failure) {
    if (!failure && child_ > 0) kill(child_, SIGKILL);
  });
  return true;
}

void Scontrol::ended() {
  timeout_.cancel();
  death_.close();
  int status = 0;
  waitpid(child_, &status, 0);
  child_ = -1;
  const std::string words = joined(waiting_.front().words);
  if (WIFSIGNALED(status))
    log::error(words + ": has not ended in time");
  else if (WEXITSTATUS(status) != 0)
    log::error(words + ": has ended with status " + std::to_string(WEXITSTATUS(status)));
  const Command command = std::move(waiting_.front());
  waiting_.pop_front();
  std::array<char, 1024> printed{};
  const ssize_t size = printed_ ? pread(printed_.get(), printed.data(), printed.size(), 0) : 0;
  printed_.reset();
  run_next();
  if (command.tell) command.tell({printed.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))});
}

}  // namespace sharedgpu
