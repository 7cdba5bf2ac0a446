// SPDX-License-Identifier: Apache-2.0
// sharedgpu supervise [--config FILE] [--tenants KIND]: keeps the arbiter running on hosts without a service
// manager.
//
// Restarts the arbiter when it ends, unless it ends by SIGTERM or with exit status 0. The pause before the
// first restart is kFirstPause. Each further pause is longer, up to kLongestPause. Kills an arbiter that has
// stopped sending heartbeats. On SIGTERM or SIGINT, sends SIGTERM to the arbiter and ends when the arbiter
// has ended. Passes SIGHUP on to the arbiter. SIGUSR1 restarts the arbiter; the package sends it after an
// upgrade, so that the new program runs. A lock in StateDir ensures that only one supervisor runs for each
// StateDir.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arbiter/cli/commands.h"

namespace sharedgpu::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kFirstPause{10};
// Shorter than the default of ArbiterTimeout=, the time for which programs wait for an arbiter before they
// run without it.
constexpr std::chrono::milliseconds kLongestPause{2'000};
// An arbiter that has run for longer than this before it ends is restarted after kFirstPause.
constexpr std::chrono::seconds kHealthy{60};
constexpr std::chrono::seconds kSilence{10};  // a stalled disk may block the arbiter for some seconds
constexpr std::chrono::seconds kToAbort{2};   // time between SIGABRT and SIGKILL

// Returns the lock, or an empty descriptor if it cannot be taken. In that case `trouble` is the error, or
// empty if another supervisor holds the lock.
UniqueFd take_lock(const std::string& folder, std::string& trouble) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), error);
  mkdir(folder.c_str(), 0700);
  const std::string path = folder + "/supervise.lock";
  UniqueFd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) {
    trouble = path + ": " + std::strerror(errno);
  } else if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) trouble = path + ": " + std::strerror(errno);
    lock.reset();
  }
  return lock;
}

// `words`: the daemon's program and its arguments.
pid_t start(std::vector<std::string> words, const sigset_t& signals) {
  pid_t child = fork();
  if (child != 0) return child;
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(arguments.front(), arguments.data());
  complain(words.front() + ": " + std::strerror(errno));
  _exit(127);
}

// Creates the socket for the arbiter's reports (sd_notify(3)). The first report says that the arbiter is
// ready. Further reports, two in each kSilence, say that the arbiter is alive. On failure, returns an empty
// descriptor and sets errno.
UniqueFd listen_for_signs(const std::string& path) {
  sockaddr_un address;
  errno = make_address(path.c_str(), address);
  if (errno != 0) return UniqueFd();
  unlink(path.c_str());
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket || fchmod(socket.get(), 0600) != 0 ||  // applies to the file that bind() creates
      bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return UniqueFd();
  return socket;
}

struct Watch {
  sigset_t signals;   // SIGCHLD, SIGTERM, SIGINT, SIGHUP and SIGUSR1, blocked
  UniqueFd arrivals;  // a signalfd for `signals`
  UniqueFd signs;     // the socket of listen_for_signs(); if empty, a silent arbiter is not killed
  bool asked_to_end = false;
  bool asked_to_restart = false;

  // Waits for the child's end. Sends SIGTERM to the child if a signal has asked this process to end or to
  // restart the arbiter. Kills the child if it is silent for too long after its first report.
  int wait_for(pid_t child) {
    std::optional<Clock::time_point> limit;
    int measure = SIGABRT;  // SIGABRT leaves a core file if the site enables core files
    for (;;) {
      int status = 0;
      if (waitpid(child, &status, WNOHANG) == child) return status;
      wait_until(limit);
      if (is_asked(child)) kill(child, SIGTERM);
      // If this process itself did not run for a while, the arbiter may not have run either, so the arbiter
      // gets more time.
      if (limit && Clock::now() > *limit + kToAbort) limit = Clock::now() + kSilence;
      if (has_given_signs()) limit = Clock::now() + kSilence;
      if (!limit || Clock::now() < *limit) continue;
      if (measure == SIGABRT) complain("the arbiter does not answer; ending it");
      kill(child, measure);
      measure = SIGKILL;
      limit = Clock::now() + kToAbort;
    }
  }

  // Waits for a signal or a sign of life, at most until `limit`.
  void wait_until(const std::optional<Clock::time_point>& limit) const {
    pollfd both[] = {{.fd = arrivals.get(), .events = POLLIN, .revents = 0},
                     {.fd = signs.get(), .events = POLLIN, .revents = 0}};
    int time = -1;
    if (limit) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*limit - Clock::now());
      time = static_cast<int>(std::max(left, std::chrono::milliseconds(0)).count());
    }
    poll(both, std::size(both), time);
  }

  // Reads all signals that have arrived, and passes SIGHUP on to the child, which then reads its settings
  // again. Returns true if a signal has asked this process to end or to restart the arbiter.
  bool is_asked(pid_t child) {
    bool end = false, restart = false;
    signalfd_siginfo signal = {};
    while (read(arrivals.get(), &signal, sizeof signal) > 0) {
      if (signal.ssi_signo == SIGHUP) kill(child, SIGHUP);
      restart = restart || signal.ssi_signo == SIGUSR1;
      end = end || signal.ssi_signo == SIGTERM || signal.ssi_signo == SIGINT;
    }
    asked_to_end = asked_to_end || end;
    asked_to_restart = asked_to_restart || restart;
    return end || restart;
  }

  bool has_given_signs() const {
    bool any = false;
    char text[64];
    while (recv(signs.get(), text, sizeof text, 0) >= 0) any = true;
    return any;
  }

  void pause(std::chrono::milliseconds time) {
    sigset_t ending;
    sigemptyset(&ending);
    sigaddset(&ending, SIGTERM);
    sigaddset(&ending, SIGINT);
    timespec limit = {.tv_sec = time.count() / 1000, .tv_nsec = time.count() % 1000 * 1'000'000};
    if (sigtimedwait(&ending, nullptr, &limit) > 0) asked_to_end = true;
  }
};

std::string describe(int status) {
  return WIFSIGNALED(status) ? std::string("by ") + strsignal(WTERMSIG(status))
                             : "with exit status " + std::to_string(WEXITSTATUS(status));
}

int supervise(const std::string& config, const std::string& tenants) {
  Settings settings;
  if (!load_settings(config, settings)) return 2;
  std::string daemon = find_sibling("../sbin/sharedgpud", "sharedgpud");
  if (daemon.empty()) {
    complain("the arbiter's program is not where it was installed");
    return 1;
  }
  std::string trouble;
  UniqueFd lock = take_lock(settings.state_dir, trouble);
  if (!trouble.empty()) {
    complain(trouble);
    return 1;
  }
  if (!lock) {
    complain("another supervisor is at work in " + settings.state_dir);
    return 0;
  }
  Watch watch;
  sigemptyset(&watch.signals);
  for (int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&watch.signals, number);
  sigprocmask(SIG_BLOCK, &watch.signals, nullptr);
  watch.arrivals.reset(signalfd(-1, &watch.signals, SFD_CLOEXEC | SFD_NONBLOCK));
  const std::string signs = settings.state_dir + "/supervise.notify";
  watch.signs = listen_for_signs(signs);
  if (watch.signs) {
    setenv("NOTIFY_SOCKET", signs.c_str(), 1);
    setenv("WATCHDOG_USEC", std::to_string(std::chrono::microseconds(kSilence).count()).c_str(), 1);
  } else {
    complain(signs + ": " + std::strerror(errno) + "; an arbiter that hangs will not be restarted");
  }

  auto pause = kFirstPause;
  std::vector<std::string> words = {daemon};
  if (!config.empty()) words.insert(words.end(), {"--config", config});
  if (!tenants.empty()) words.insert(words.end(), {"--tenants", tenants});
  while (!watch.asked_to_end) {
    auto begin = Clock::now();
    pid_t child = start(words, watch.signals);
    if (child < 0) {
      complain(std::string("fork: ") + std::strerror(errno));
      return 1;
    }
    int status = watch.wait_for(child);
    const bool restart = std::exchange(watch.asked_to_restart, false);
    if (restart && !watch.asked_to_end) {
      complain("the arbiter ended " + describe(status) + " for its restart");
      pause = kFirstPause;
      continue;
    }
    bool meant = (WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
                 (WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    if (meant || watch.asked_to_end) return 0;
    if (Clock::now() - begin > kHealthy) pause = kFirstPause;
    complain("the arbiter ended " + describe(status) + "; starting it again in " +
             std::to_string(pause.count()) + " ms");
    watch.pause(pause);
    pause = std::min(pause * 4, kLongestPause);
  }
  return 0;
}

}  // namespace

void add_supervise(CLI::App& app, int& status) {
  auto config = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("supervise", "Keep the arbiter running");
  command->add_option("--config", *config, "Settings")->type_name("FILE");
  auto tenants = std::make_shared<std::string>();
  command->add_option("--tenants", *tenants, "Passed on to sharedgpud")
      ->type_name("KIND")
      ->check(CLI::IsMember({"jobs", "any"}));
  command->callback([config, tenants, &status] { status = supervise(*config, *tenants); });
}

}  // namespace sharedgpu::cli
