// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/stand_in.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace sharedgpu::cli {
namespace {

constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
constexpr int kEnds[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP};
// Signals that this process does not forward if the terminal sends them, because the terminal sends them to
// all foreground processes. SIGHUP is forwarded, because the terminal sends it only to the session leader.
constexpr int kOfTerminals[] = {SIGINT, SIGQUIT, SIGWINCH, SIGTSTP};

volatile sig_atomic_t child_of_signals = 0;
volatile sig_atomic_t wanted_to_end = 0;

template <std::size_t N>
bool is_one_of(const int (&signals)[N], int signal) {
  return std::find(std::begin(signals), std::end(signals), signal) != std::end(signals);
}

void pass_signal_on(int number, siginfo_t* info, void* /*context*/) {
  const int before = errno;
  const bool from_kernel = info->si_code > 0;
  const bool own = !from_kernel && info->si_pid == getpid();  // sent by this process itself, such as SIGPIPE
  if (is_one_of(kFaults, number) && (from_kernel || own)) {
    signal(number, SIG_DFL);  // the fault recurs and ends this process
    return;
  }
  if (is_one_of(kEnds, number)) wanted_to_end = 1;
  if (!own && child_of_signals > 0 && !(from_kernel && is_one_of(kOfTerminals, number)))
    kill(static_cast<pid_t>(child_of_signals), number);
  errno = before;
}

// Handles all signals but SIGCHLD. A signal interrupts a blocking call, so that a loop around the call can
// check is_to_hurry().
void divert_signals() {
  struct sigaction action = {};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = pass_signal_on;
  for (int number = 1; number <= SIGRTMAX; ++number)
    if (number != SIGCHLD) sigaction(number, &action, nullptr);
}

void set_mask(const sigset_t& mask) { sigprocmask(SIG_SETMASK, &mask, nullptr); }

// Returns a set with SIGTTOU alone, the only signal that this process blocks. If the terminal has the tostop
// flag, a background process can write to the terminal only while the process blocks SIGTTOU. A handler for
// SIGTTOU would instead make each write fail with EINTR.
sigset_t only_of_writing_to_terminals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTTOU);
  return set;
}

}  // namespace

int StandIn::start(const std::function<int()>& execute) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // Blocks all signals until the pid of the child is known, since signals can be forwarded only after that.
  sigprocmask(SIG_BLOCK, &all, &before);
  struct sigaction on_child = {};
  sigaction(SIGCHLD, nullptr, &on_child);
  signal(SIGCHLD, SIG_DFL);  // if SIGCHLD is ignored, the child's exit status is lost
  const pid_t parent = getpid();
  child_ = fork();
  if (child_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // the child dies with this process
    if (getppid() != parent) _exit(128 + SIGKILL);
    sigaction(SIGCHLD, &on_child, nullptr);
    set_mask(before);
    _exit(execute());
  }
  const int error = child_ < 0 ? errno : 0;
  if (error == 0) {
    child_of_signals = child_;
    divert_signals();
  }
  set_mask(error == 0 ? only_of_writing_to_terminals() : before);
  return error;
}

// Does not reap the child, so that its pid is not reused while signals may be forwarded to it.
bool StandIn::look(int options) {
  siginfo_t info = {};
  int error = 0;
  do
    error = waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WSTOPPED | WNOWAIT | options) == 0
                ? 0
                : errno;
  while (error == EINTR);
  if (error == 0 && info.si_pid != child_) return false;
  if (error == 0 && info.si_code == CLD_STOPPED) {
    waitid(P_PID, static_cast<id_t>(child_), &info, WSTOPPED | WNOHANG);
    // The shell's job control stops and continues this process, so this process stops with its child. SIGSTOP
    // is an exception: the sender of SIGSTOP has stopped the child alone, and will continue the child alone.
    if (info.si_status != SIGSTOP) raise(SIGSTOP);
    return false;
  }
  // If the child exits normally after a signal, is_to_hurry() returns false.
  if (!ended_ && info.si_code == CLD_EXITED) wanted_to_end = 0;
  return ended_ = true;
}

bool StandIn::child_has_ended() { return ended_ || look(WNOHANG); }

bool StandIn::is_to_hurry() const { return ended_ && wanted_to_end != 0; }

int StandIn::end() {
  while (!ended_) look(0);
  int status = 0;
  waitpid(child_, &status, 0);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  signal(WTERMSIG(status), SIG_DFL);
  const rlimit none = {.rlim_cur = 0, .rlim_max = 0};  // only the child writes a core file
  setrlimit(RLIMIT_CORE, &none);
  raise(WTERMSIG(status));
  return 128 + WTERMSIG(status);
}

}  // namespace sharedgpu::cli
