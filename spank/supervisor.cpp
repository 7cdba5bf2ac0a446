// SPDX-License-Identifier: Apache-2.0
#include "spank/supervisor.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>

#include "config/close_from.h"

extern char** environ;

namespace sharedgpu {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Runs in the daemon's process, after the double fork. slurmd has threads, so this function makes only
// async-signal-safe calls. Writes errno to `report` if the program cannot be executed.
[[noreturn]] void become(char* const* arguments, char* const* environment, int report) {
  constexpr int kReport = 3;
  if (int null = open("/dev/null", O_RDWR); null >= 0)
    for (int fd = 0; fd <= 2; ++fd) dup2(null, fd);
  if (report != kReport) dup2(report, kReport);
  fcntl(kReport, F_SETFD, FD_CLOEXEC);
  close_from(kReport + 1);
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  umask(022);
  // The arbiter needs several descriptors for each session.
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  if (chdir("/") == 0) execve(arguments[0], arguments, environment);
  int error = errno;
  if (write(kReport, &error, sizeof error) < 0) _exit(126);
  _exit(127);
}

int read_error(int fd) {
  int error = 0;
  ssize_t size;
  while ((size = read(fd, &error, sizeof error)) < 0 && errno == EINTR) {
  }
  return size == sizeof error ? error : 0;
}

std::vector<std::string> words_of(int pid, const char* file) {
  std::ifstream content("/proc/" + std::to_string(pid) + "/" + file, std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(content, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace

std::string start_supervisor(const std::string& command, const std::string& config,
                             const std::vector<std::string>& environment) {
  std::vector<std::string> words = {command, "supervise"};
  if (!config.empty()) words.insert(words.end(), {"--config", config});
  words.insert(words.end(), {"--tenants", "jobs"});  // with this option, the arbiter does not accept
                                                     // processes outside jobs as tenants
  return start_daemon(words, environment);
}

std::string start_daemon(const std::vector<std::string>& words, const std::vector<std::string>& environment) {
  std::vector<char*> arguments = pointers(words);
  std::vector<char*> variables = pointers(environment);
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) return std::string("pipe: ") + std::strerror(errno);
  pid_t child = fork();
  if (child == 0) {
    setsid();
    // The second fork makes init the daemon's parent, so this process does not have to wait for the daemon's
    // end.
    if (pid_t daemon = fork(); daemon != 0) _exit(daemon < 0 ? 1 : 0);
    become(arguments.data(), variables.data(), report[1]);
  }
  int error = child < 0 ? errno : 0;
  close(report[1]);
  if (child > 0) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    error = WIFEXITED(status) && WEXITSTATUS(status) != 0 ? EAGAIN : read_error(report[0]);
  }
  close(report[0]);
  return error == 0 ? std::string() : words.front() + ": " + std::strerror(error);
}

std::vector<std::string> own_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) result.emplace_back(*entry);
  return result;
}

std::vector<std::string> environment_of(int pid) { return words_of(pid, "environ"); }

std::vector<std::string> command_line_of(int pid) { return words_of(pid, "cmdline"); }

std::vector<std::string> with_node_name(std::vector<std::string> environment,
                                        const std::vector<std::string>& slurmd) {
  const std::string variable = "SLURMD_NODENAME=";
  for (const std::string& entry : environment)
    if (entry.starts_with(variable)) return environment;
  for (std::size_t i = 1; i < slurmd.size(); ++i) {
    if (!slurmd[i].starts_with("-N")) continue;
    const std::string name = slurmd[i].size() > 2    ? slurmd[i].substr(2)
                             : i + 1 < slurmd.size() ? slurmd[i + 1]
                                                     : "";
    if (!name.empty()) environment.push_back(variable + name);
    break;
  }
  return environment;
}

}  // namespace sharedgpu
