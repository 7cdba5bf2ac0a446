// SPDX-License-Identifier: GPL-2.0-or-later
#include "accounting/usage_poller.h"

#include <dirent.h>
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

#include "accounting/usage_writer.h"
#include "protocol/ask.h"
#include "protocol/own_thread.h"
#include "slurm_shared/abi/accounting.h"

namespace sharedgpu {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPeriod{200};
constexpr milliseconds kPatience{1000};
// A poll reads files for every process of the step. So large steps are polled less often: the pause after an
// update() is this many times the CPU time of the update(), at least kPeriod and at most kLongestPeriod.
constexpr int kPollShare = 50;
constexpr milliseconds kLongestPeriod{1000};
// To find the call for the reporting task (see usage_writer.h), one update() makes at most this many polls.
// If these polls do not find the call, the next update() continues the search.
constexpr int kTries = 16;

OurTres tres_ids;
// The writer for which this thread is polling now; null if this thread makes no poll.
thread_local UsageWriter* polling = nullptr;

// Slurm's record of one task, read right after a poll.
struct TaskRecord {
  bool exists = false;
  std::optional<StepCounts> counts;
};

// Reads the counts of sharedgpu's TRES from the usage of one task. `in` and `out` are Slurm's TRES lists of
// the task, as in TRESUsageInTot and TRESUsageOutTot. Returns nullopt if a list lacks a TRES that
// AccountingStorageTRES names.
std::optional<StepCounts> read_counts(const char* in, const char* out) {
  StepCounts counts;
  const auto read = [](const char* list, std::optional<std::uint32_t> tres, std::uint64_t& count) {
    if (!tres) return true;
    const auto found = list == nullptr ? std::nullopt : find_tres(list, *tres);
    count = found.value_or(0);
    return found.has_value();
  };
  const bool all = read(in, tres_ids.lease, counts.seconds) && read(out, tres_ids.lease, counts.waited) &&
                   read(in, tres_ids.swap, counts.restored) && read(out, tres_ids.swap, counts.evicted);
  return all ? std::optional(counts) : std::nullopt;
}

TaskRecord poll_task(pid_t task) {
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(23, 2, 0)
  jobacctinfo_t* record = jobacct_gather_stat_task(task);
#else
  jobacctinfo_t* record = jobacct_gather_stat_task(task, true);
#endif
  if (record == nullptr) return {};
  slurmdb_stats_t stats = {};
  jobacctinfo_2_stats(&stats, record);
  TaskRecord result{.exists = true, .counts = read_counts(stats.tres_usage_in_tot, stats.tres_usage_out_tot)};
  slurmdb_free_slurmdb_stats_members(&stats);
  jobacctinfo_destroy(record);
  return result;
}

bool is_own_child(const char* pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
  FILE* file = std::fopen(path, "re");
  if (file == nullptr) return false;
  char text[512];
  std::size_t size = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  text[size] = '\0';
  // The text is "PID (NAME) STATE PPID ...", and NAME may contain any characters.
  const char* end = std::strrchr(text, ')');
  int parent = 0;
  return end != nullptr && std::sscanf(end, ") %*c %d", &parent) == 1 && parent == getpid();
}

// Returns the pid of a running task of the step, or 0 if no task is running. Tasks are children of
// slurmstepd, but not all children of slurmstepd are tasks.
pid_t find_task() {
  DIR* processes = opendir("/proc");
  if (processes == nullptr) return 0;
  pid_t task = 0;
  while (const dirent* entry = readdir(processes)) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9' || !is_own_child(entry->d_name)) continue;
    auto pid = static_cast<pid_t>(std::atoi(entry->d_name));
    if (!poll_task(pid).exists) continue;
    task = pid;
    break;
  }
  closedir(processes);
  return task;
}

class UsagePoller {
 public:
  explicit UsagePoller(SharedGpuStep& step) : step_(step), writer_(step.tasks == 1) {}

  void update() {
    auto total = ask_total();
    if (!total || !writer_.is_due(*total)) return;
    pthread_mutex_lock(&step_.asking);
    if (!step_.ended) write(*total);
    pthread_mutex_unlock(&step_.asking);
  }

 private:
  std::optional<StepCounts> ask_total() const {
    Message answer;
    LeaseQuery query{.step = {.job = step_.job, .step = step_.step}};
    if (ask(step_.socket, Message::of(query), kPatience, answer) != 0) return std::nullopt;
    if (answer.type != MessageType::lease_reply) return std::nullopt;
    const auto reply = answer.as<LeaseReply>();
    StepCounts total;
    if (tres_ids.lease) {
      total.seconds = UsageWriter::seconds(reply.lease);
      total.waited = UsageWriter::seconds(reply.waited);
    }
    if (tres_ids.swap) {
      total.restored = UsageWriter::mebibytes(reply.moved.restored.count);
      total.evicted = UsageWriter::mebibytes(reply.moved.evicted.count);
    }
    return total;
  }

  void write(const StepCounts& total) {
    if (reporting_task_ == 0) reporting_task_ = find_task();
    for (int i = 0; i < kTries && reporting_task_ != 0; ++i) {
      writer_.begin_poll(total);
      polling = &writer_;
      TaskRecord record = poll_task(reporting_task_);
      polling = nullptr;
      if (!record.exists) {
        writer_.reporting_task_ended();
        reporting_task_ = find_task();
      } else if (writer_.end_poll(record.counts)) {
        return;
      }
    }
  }

  SharedGpuStep& step_;
  UsageWriter writer_;
  pid_t reporting_task_ = 0;
};

// Returns this thread's CPU time. Wall-clock time would include the time for which the thread waits for a
// CPU.
Nanoseconds own_cpu_time() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + Nanoseconds(time.tv_nsec);
}

void* run(void* argument) {
  auto* poller = static_cast<UsagePoller*>(argument);
  for (;;) {
    Nanoseconds begin = own_cpu_time();
    poller->update();
    Nanoseconds pause = (own_cpu_time() - begin) * kPollShare;
    std::this_thread::sleep_for(std::clamp<Nanoseconds>(pause, kPeriod, kLongestPeriod));
  }
  return nullptr;
}

}  // namespace

void start_usage_poller(SharedGpuStep& step, const OurTres& tres) {
  tres_ids = tres;
  pthread_t thread;
  // The thread may run until the process ends, so the UsagePoller is never destroyed.
  if (const int error = start_own_thread(&thread, run, new UsagePoller(step)))
    slurm_error("acct_gather_interconnect/sharedgpu: cannot start a thread: %s", std::strerror(error));
  else
    pthread_detach(thread);
}

bool poller_writes(StepCounts& value) {
  if (polling == nullptr) return false;
  auto counts = polling->next_call();
  value = counts.value_or(StepCounts{});
  return counts.has_value();
}

}  // namespace sharedgpu
