// SPDX-License-Identifier: Apache-2.0
#include "spank/suspension.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "protocol/ask.h"
#include "protocol/own_thread.h"
#include "slurm_shared/siblings.h"
#include "spank/plugin.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kLook = 50ms;
constexpr Nanoseconds kPatience = 1s;
constexpr auto kRepeat = 5s;
// Tasks that are stopped get SIGCONT for this time after the beginning of a suspension. It is long enough for
// SIGTSTP to take effect, and ends before Slurm freezes the processes.
constexpr auto kSignals = 1s;

// Returns the number in a line of /proc/PID/status, such as 12 in "PPid:\t12"; 0 if there is no such line.
std::uint64_t status_line(const std::string& status, const char* name, int base) {
  const std::size_t at = status.find(std::string("\n") + name + ":");
  return at == std::string::npos ? 0
                                 : std::strtoull(status.c_str() + at + std::strlen(name) + 2, nullptr, base);
}

// Returns true if SIGTSTP has stopped this task of the step, and the task handles neither SIGTSTP nor
// SIGCONT.
bool merely_stopped(pid_t task) {
  std::ifstream file("/proc/" + std::to_string(task) + "/status");
  const std::string status(std::istreambuf_iterator<char>(file), {});
  const auto handles = [caught = status_line(status, "SigCgt", 16)](int signal) {
    return (caught >> (signal - 1) & 1) != 0;
  };
  return status.find("\nState:\tT") != std::string::npos &&
         status_line(status, "PPid", 10) == static_cast<std::uint64_t>(getpid()) && !handles(SIGTSTP) &&
         !handles(SIGCONT);
}

// Returns true if a library whose path ends with `tail` is loaded in this process.
bool is_loaded(const char* tail) {
  return dl_iterate_phdr(
             [](dl_phdr_info* library, std::size_t, void* wanted) {
               const std::string path = library->dlpi_name;
               const auto* end = static_cast<const char*>(wanted);
               return path.ends_with(end) ? 1 : 0;
             },
             const_cast<char*>(tail)) != 0;
}

// Slurm's function that tells its pollers whether the step is suspended. libslurmfull exports this function
// (22.05 to 26.05), but no public header declares it.
using SuspendTest = bool();

class Watch {
 public:
  Watch(SuspendTest* test, const StepName& step, const std::string& socket, bool freezes)
      : test_(test), step_(step), socket_(socket), freezes_(freezes) {}

  void add(pid_t task) {
    std::lock_guard lock(mutex_);
    tasks_.push_back(task);
  }

  void run() {
    for (;;) {
      std::this_thread::sleep_for(kLook);
      const bool suspended = test_();
      if (!suspended) running_ = Clock::now();
      if (suspended && freezes_ && Clock::now() - running_ < kSignals) let_go_on();
      const bool repeats = suspended == told_;
      // Repeats the notice during a suspension, since processes of the step or an arbiter that start later
      // need it, too.
      const bool tells_again = unheard_ || suspended;
      if (repeats && (!tells_again || Clock::now() - tried_ < kRepeat)) continue;
      unheard_ = !tell(suspended);
      tried_ = Clock::now();
      told_ = suspended;
    }
  }

 private:
  void let_go_on() {
    std::lock_guard lock(mutex_);
    for (const pid_t task : tasks_)
      if (merely_stopped(task)) kill(task, SIGCONT);
  }

  bool tell(bool suspended) const {
    Message answer;
    const SuspendJob word{.step = step_, .suspended = suspended};
    return ask(socket_.c_str(), Message::of(word), kPatience, answer) == 0;
  }

  SuspendTest* test_;
  StepName step_;
  std::string socket_;
  bool freezes_;
  Clock::time_point running_ = Clock::now();  // the last time at which the step was seen not suspended
  bool told_ = false;
  Clock::time_point tried_{};  // time of the last attempt to notify the arbiter
  bool unheard_ = false;       // the arbiter may not have received the last notice
  std::mutex mutex_;
  std::vector<pid_t> tasks_;
};

void* run(void* watch) {
  static_cast<Watch*>(watch)->run();
  return nullptr;
}

// The thread may run until the process ends, so the Watch object is never destroyed.
Watch* start(const StepName& step, const std::string& socket) {
  auto* test = reinterpret_cast<SuspendTest*>(dlsym(RTLD_DEFAULT, "acct_gather_suspend_test"));
  if (test == nullptr) {
    log_error(
        "this release of Slurm does not report suspensions: the device memory of a suspended step stays on "
        "the GPU");
    return nullptr;
  }
  stay_loaded();
  // Only proctrack/cgroup freezes processes. Other plugins stop processes by a signal that SIGCONT undoes.
  auto* watch = new Watch(test, step, socket, is_loaded("/proctrack_cgroup.so"));
  pthread_t thread;
  if (const int error = start_own_thread(&thread, run, watch)) {
    log_error(std::string("cannot start a thread: ") + std::strerror(error));
    return nullptr;
  }
  pthread_detach(thread);
  return watch;
}

}  // namespace

void watch_for_suspension(const StepName& step, const std::string& socket, pid_t task) {
  static Watch* const watch = start(step, socket);
  if (watch != nullptr) watch->add(task);
}

}  // namespace sharedgpu
