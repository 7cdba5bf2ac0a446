// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/deadlines.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <vector>

#include "arbiter/cli/commands.h"
#include "include/sharedgpu_deadline.h"
#include "protocol/channel.h"
#include "protocol/deadline_lines.h"

namespace sharedgpu::cli {
namespace {

constexpr int kPiece = 4096;  // read at a time

volatile sig_atomic_t child_of_signals = 0;

// What a terminal sends, the child gets itself; the kernel sends that, and users the rest.
bool is_from_terminal(int signal, const siginfo_t& info) {
  const bool of_terminals = signal == SIGINT || signal == SIGQUIT || signal == SIGHUP || signal == SIGWINCH;
  return of_terminals && info.si_code > 0;
}

void pass_signal_on(int signal, siginfo_t* info, void* /*context*/) {
  if (child_of_signals > 0 && !is_from_terminal(signal, *info))
    kill(static_cast<pid_t>(child_of_signals), signal);
}

// All but what stops this process, as it stops the child, and what its own faults raise.
void divert_signals() {
  struct sigaction action = {};
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  action.sa_sigaction = pass_signal_on;
  constexpr int kOurs[] = {SIGCHLD, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGKILL, SIGSEGV,
                           SIGBUS,  SIGFPE,  SIGILL,  SIGABRT, SIGTRAP, SIGSYS};
  for (int signal = 1; signal <= SIGRTMAX; ++signal)
    if (std::find(std::begin(kOurs), std::end(kOurs), signal) == std::end(kOurs))
      sigaction(signal, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

// It stays a zombie, so that its number is nobody else's while signals may be passed on.
bool has_ended(pid_t child, int options) {
  siginfo_t info = {};
  int error = 0;
  do error = waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT | options) == 0 ? 0 : errno;
  while (error == EINTR);
  return error != 0 || info.si_pid == child;
}

// False: whoever read it has gone.
bool write_all(int fd, const char* text, ssize_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, text, static_cast<std::size_t>(size));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      pollfd entry = {.fd = fd, .events = POLLOUT, .revents = 0};
      poll(&entry, 1, -1);
      continue;
    }
    if (written <= 0) return written == 0 || errno != EPIPE;
    text += written;
    size -= written;
  }
  return true;
}

// Passes on what is there. False: nobody writes any more, or nobody reads.
bool pass_on(int from, DeadlineLines& lines) {
  char text[kPiece];
  const ssize_t size = read(from, text, sizeof text);
  if (size <= 0) return size < 0 && (errno == EINTR || errno == EAGAIN);
  const bool read_on = write_all(STDERR_FILENO, text, size);
  Deadlines counts;
  lines.feed(text, static_cast<std::size_t>(size), counts);
  for (; counts.met > 0; --counts.met) sharedgpu_deadline(1);
  for (; counts.missed > 0; --counts.missed) sharedgpu_deadline(0);
  return read_on;
}

bool has_more(int from, int milliseconds) {
  pollfd entry = {.fd = from, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, milliseconds) > 0;
}

// The pipe of deadlines breaks where nobody has that.
int reading_end_of_deadlines() {
  const char* text = std::getenv("SHAREDGPU_DEADLINE_READ");
  return text == nullptr ? -1 : std::atoi(text);
}

// Whoever waits for the end of what the child closes must not wait for us.
void keep_only(std::initializer_list<int> kept) {
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) dup2(null.get(), fd);
  std::vector<int> others;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error))
    if (const int fd = std::atoi(entry.path().filename().c_str());
        fd > STDERR_FILENO && std::find(kept.begin(), kept.end(), fd) == kept.end())
      others.push_back(fd);
  for (const int fd : others) close(fd);
}

int end_as(int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  signal(WTERMSIG(status), SIG_DFL);
  const rlimit none = {.rlim_cur = 0, .rlim_max = 0};  // the core that matters is the child's
  setrlimit(RLIMIT_CORE, &none);
  raise(WTERMSIG(status));
  return 128 + WTERMSIG(status);
}

}  // namespace

int run_with_stderr_read(const std::function<int()>& execute) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    complain(std::string("no pipe for stderr: ") + std::strerror(errno));
    return 1;
  }
  UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  for (UniqueFd* end : {&reading, &writing}) move_out_of_the_way(*end);  // stderr may be closed, and one be 2
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);  // until it is known whom to pass them on to
  struct sigaction on_child = {};
  sigaction(SIGCHLD, nullptr, &on_child);
  signal(SIGCHLD, SIG_DFL);  // who ignores it learns of no exit status
  const pid_t child = fork();
  if (child < 0) {
    complain(std::string("no process: ") + std::strerror(errno));
    return 1;
  }
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // who kills us means it
    dup2(writing.get(), STDERR_FILENO);
    sigaction(SIGCHLD, &on_child, nullptr);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    _exit(execute());
  }
  child_of_signals = child;
  divert_signals();
  sigprocmask(SIG_SETMASK, &before, nullptr);
  writing.reset();
  keep_only({reading.get(), sharedgpu_deadline_fd(), reading_end_of_deadlines()});

  constexpr int kLook = 20;  // milliseconds: what the child leaves behind may keep stderr open for ever
  DeadlineLines lines;
  bool open = true;
  while (open && !has_ended(child, WNOHANG)) {
    if (has_more(reading.get(), kLook)) open = pass_on(reading.get(), lines);
  }
  if (!open) reading.reset();  // where nobody reads, the child is to learn of it
  if (!open) has_ended(child, 0);
  // What it wrote, and not what others that it has left behind go on writing.
  int unread = 0;
  if (open && ioctl(reading.get(), FIONREAD, &unread) != 0) unread = 0;
  for (; open && unread > 0; unread -= kPiece) open = pass_on(reading.get(), lines);
  int status = 0;
  waitpid(child, &status, 0);
  return end_as(status);
}

}  // namespace sharedgpu::cli
