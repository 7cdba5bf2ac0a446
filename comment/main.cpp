// SPDX-License-Identifier: GPL-2.0-or-later
// sharedgpu-comment: writes a summary of each job's usage into the job's AdminComment. See
// docs/accounting.md.
//
// The SPANK plugin starts this program when a job has ended on this node, and when slurmd starts while the
// spool is not empty. Only one instance at a time processes the spool. The program exits when the spool has
// no entries (spool.h); marks of jobs that still run do not keep it from exiting.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <thread>

#include "comment/retry_queue.h"
#include "comment/slurmdb_records.h"
#include "config/command_line.h"
#include "config/host_name.h"
#include "config/settings.h"
#include "protocol/ask.h"
#include "protocol/backend_names.h"
#include "protocol/gpu_names.h"
#include "protocol/split.h"

namespace sharedgpu {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Arguments {
  std::string config;
  std::string spool;
  std::uint32_t ended = 0;
  std::uint32_t settle = 60;
  bool stay = false;
};

void say(const std::string& text) {
  syslog(LOG_NOTICE, "%s", text.c_str());
  std::fprintf(stderr, "sharedgpu-comment: %s\n", text.c_str());
}

std::int64_t now() { return std::time(nullptr); }

std::set<std::string> backends_of(std::uint8_t bits) {
  std::set<std::string> names;
  for (const auto& [name, backend] : kBackendNames)
    if ((bits & (1u << static_cast<unsigned>(backend))) != 0) names.emplace(name);
  return names;
}

JobSummary share_of(JobReply reply) {
  using std::chrono::round;
  reply.models[sizeof reply.models - 1] = '\0';
  JobSummary share{.nodes = {host_name()},
                   .lease = round<milliseconds>(reply.lease),
                   .waited = round<milliseconds>(reply.waited),
                   .overuse = round<milliseconds>(reply.overuse),
                   .handoffs = reply.handoffs,
                   .restored = reply.moved.restored.count,
                   .evicted = reply.moved.evicted.count,
                   .footprint = reply.footprint.count,
                   .resident = reply.resident.count,
                   .backends = backends_of(reply.backends),
                   .gpus = {},
                   .gpu_losses = {}};
  for (std::string_view model : split(reply.models, ';'))
    if (!model.empty()) share.gpus.emplace(model);
  return share;
}

// Adds the job's lost GPUs to `share`. Returns false if the arbiter does not answer.
bool ask_for_losses(const std::string& socket, const JobReply& reply, JobSummary& share) {
  for (std::uint32_t place = 0; place < reply.losses; ++place) {
    Message answer;
    const GpuLossQuery query{.job = reply.job, .place = place};
    if (ask(socket.c_str(), Message::of(query), seconds(1), answer) != 0) return false;
    if (answer.type != MessageType::gpu_loss_reply) return false;
    auto loss = answer.as<GpuLossReply>();
    loss.fault[sizeof loss.fault - 1] = '\0';
    if (loss.known != 0)
      share.gpu_losses.insert({.node = host_name(), .gpu = format_gpu(loss.gpu), .reason = loss.fault});
  }
  return true;
}

// Replaces the mark of an ended job by an entry (spool.h), or only removes the mark if the arbiter has no
// record of the job. `end`: the time at which the job's end was noticed. Returns false, and leaves the mark,
// if the arbiter does not answer or still sees a process of the job, or if the entry cannot be written.
bool take(const Spool& marks, const Spool& entries, const std::string& socket, const Spool::Mark& mark,
          std::int64_t end) {
  Message answer;
  const JobQuery query{.job = mark.job};
  if (ask(socket.c_str(), Message::of(query), seconds(1), answer) != 0) return false;
  if (answer.type != MessageType::job_reply) return false;
  const auto reply = answer.as<JobReply>();
  if (reply.lives != 0) return false;
  if (reply.known == 0) {
    say("job " + std::to_string(mark.job) +
        ": the arbiter has no record of it; its AdminComment is left unchanged");
  } else {
    SpoolEntry entry{.job = mark.job, .seen = {.begin = mark.since, .end = end}, .share = share_of(reply)};
    if (!ask_for_losses(socket, reply, entry.share)) return false;
    if (const std::string error = entries.write(entry); !error.empty()) {
      say(error);
      return false;
    }
  }
  marks.unmark(mark.job);
  return true;
}

// Replaces the mark of the job `job` by an entry. Retries for some seconds: the job's last processes may not
// have exited, or the arbiter may be restarting.
void take_ended(const Spool& marks, const Spool& entries, const std::string& socket, std::uint32_t job) {
  for (int tries = 0; tries < 50; ++tries) {
    const auto mark = marks.mark_of(job);
    if (!mark || take(marks, entries, socket, *mark, now())) return;
    std::this_thread::sleep_for(milliseconds(100));
  }
}

// Handles jobs whose end was not reported on this node, because the node or slurmd went down. Slurm may have
// requeued such a job. So the time of the mark identifies the run to which the entry belongs.
void take_missed(const Spool& spool, const std::string& socket, RetryQueue& queue) {
  for (const Spool::Mark& mark : spool.marks())
    if (queue.has_ended(mark)) take(spool, spool, socket, mark, mark.since);
}

// Processes the spool until it has no entries; with --stay, until the process is killed. If the cluster has
// no slurmdbd, only removes all marks and entries.
void work(Spool& spool, const std::string& socket, CommentField field, const Arguments& arguments) {
  constexpr std::int64_t kSweep = 300;
  SlurmdbRecords records;
  if (!records.any()) {
    say("off: AccountingStorageType in slurm.conf is not accounting_storage/slurmdbd; see AdminComment in "
        "sharedgpu.conf");
    for (const Spool::Mark& mark : spool.marks()) spool.unmark(mark.job);
    for (const std::string& name : spool.entries()) spool.remove(name);
    return;
  }
  RetryQueue queue(spool, records, seconds(arguments.settle), field, say);
  std::int64_t swept = 0;
  for (;;) {
    if (!socket.empty() && now() - swept >= kSweep) {
      take_missed(spool, socket, queue);
      swept = now();
    }
    const bool left = queue.pass(now());
    if (!left && !arguments.stay) return;
    records.disconnect();
    std::this_thread::sleep_for(seconds(1));
  }
}

int run(const Arguments& arguments) {
  Settings settings;
  const std::string error =
      arguments.config.empty() ? read_default_settings(settings) : read_settings(arguments.config, settings);
  if (!error.empty()) {
    say(error);
    return 2;
  }
  const Spool marks(settings.state_dir + "/comments");
  const bool elsewhere = settings.comments == AdminComment::folder;
  if (arguments.ended != 0)
    take_ended(marks, elsewhere ? Spool(settings.comment_folder) : marks, settings.socket, arguments.ended);
  const CommentField field = settings.system_comment ? CommentField::system : CommentField::admin;
  Spool spool(arguments.spool.empty() ? marks.folder() : arguments.spool);
  if (arguments.spool.empty() && settings.comments != AdminComment::yes) return 0;
  // Each instance of this program first writes its entry and then tries to lock the spool. If another
  // instance holds the lock, the new instance exits. So after an instance has released the lock, it checks
  // the spool again for entries that other instances have written.
  do {
    const UniqueFd lock(open((spool.folder() + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!lock) {
      say(spool.folder() + "/lock: " + std::strerror(errno));
      return 1;
    }
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return 0;
    work(spool, arguments.spool.empty() ? settings.socket : std::string(), field, arguments);
  } while (!spool.entries().empty());
  return 0;
}

}  // namespace
}  // namespace sharedgpu

int main(int argc, char** argv) {
  sharedgpu::Arguments arguments;
  CLI::App app("Write a summary of each job into its AdminComment.", "sharedgpu-comment");
  app.set_version_flag("--version", SHAREDGPU_VERSION);
  app.add_option("--config", arguments.config, "Settings")->type_name("FILE");
  app.add_option("--ended", arguments.ended, "Take the summary of this job, which has ended on this node")
      ->type_name("JOB");
  app.add_option("--spool", arguments.spool,
                 "Write AdminComments from the summaries in this folder, which may come from several nodes")
      ->type_name("FOLDER");
  app.add_option("--settle", arguments.settle, "Check each AdminComment again after this time (default 60)")
      ->type_name("SECONDS");
  app.add_flag("--stay", arguments.stay, "Do not exit when nothing is left to do");
  if (const auto ended = sharedgpu::parse_command_line(app, argc, argv)) return *ended;
  openlog("sharedgpu-comment", LOG_PID, LOG_DAEMON);
  return sharedgpu::run(arguments);
}
