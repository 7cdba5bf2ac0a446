// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/scontrol.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "arbiter/daemon/log.h"
#include "arbiter/daemon/watched.h"
#include "config/host_name.h"

namespace sharedgpu {
namespace {

constexpr std::size_t kMostWaiting = 1024;
// The numbers of tries. If each try fails at once, the tries of a drain last ten minutes with the pauses in
// between, and the tries of a requeue last one minute. After more than a minute, a user or Slurm may have
// requeued the job, and the new run must not be requeued.
constexpr unsigned kDrainTries = 60;
constexpr unsigned kRequeueTries = 6;
constexpr unsigned kEndlessTries = ~0u;

// $0 is the job's number. A job that has just ended successfully is not requeued. An element of a job array
// is named ARRAY_INDEX: Slurm may not know the element's job number, or may take it for the number of the
// whole array. The requested fields of squeue contain no text that users choose.
constexpr char kRequeue[] =
    "jobs=$(squeue -h -a -t all -j \"$0\" -o '%A %F_%K') || exit; "
    "scontrol -o show job \"$0\" | grep \"^JobId=$0 \" | grep -Eq 'JobState=COMPLET(ED|ING) .*ExitCode=0:0' "
    "&& exit; "
    "element=$(printf '%s\\n' \"$jobs\" | sed -En \"s/^$0 ([0-9]+_[0-9]+)$/\\\\1/p\"); "
    "exec scontrol requeue \"${element:-$0}\"";

// $0 is the node.
constexpr char kFindAddress[] =
    "address=$(scontrol -o show node \"$0\" | sed -n 's/.* NodeAddr=\\([^ ]*\\).*/\\1/p'); "
    "[ -n \"$address\" ] || exit; "
    "getent ahosts \"$address\" | { read -r number rest; echo \"$number\"; }";

// $0 is the job's number. Slurm may also show other elements of the job's array. The requested fields of
// squeue contain no text that users choose.
constexpr char kFindNodes[] =
    "list=$(squeue -h -a -t all -j \"$0\" -o '%A %N' | sed -n \"s/^$0 //p\"); "
    "[ -n \"$list\" ] || exit; "
    "scontrol -o show node \"$list\" | sed -n 's/^NodeName=\\([^ ]*\\).* NodeAddr=\\([^ ]*\\).*/\\1 \\2/p' "
    "| "
    "while read -r name address; do "
    "echo \"$name $(getent ahosts \"$address\" | { read -r number rest; echo \"$number\"; })\"; done";

// $0 is the node. Slurm prints times without a zone; TZ makes them UTC. The only text in the output that
// users choose is requests for resources, which contain no spaces and come last in a line.
constexpr char kFindJobs[] =
    "TZ=UTC squeue -h -w \"$0\" -t running,completing,configuring "
    "-O 'JobID:20,NumNodes:12,StartTime:24,tres-per-node:200,tres-per-job:200,tres-per-socket:200,"
    "tres-per-task:200,tres-alloc:400' | sed -n '/[:\\/]sharedgpu/p' | while read -r job nodes start rest; "
    "do "
    "[ \"$nodes\" = 1 ] || echo \"$job $(date -u -d \"$start\" +%s)\"; done";

constexpr char kFindPrivateData[] =
    "command -v scontrol >/dev/null || { echo none; exit; }; "
    "config=$(scontrol show config) || exit; "
    "printf '%s\\n' \"$config\" | sed -n 's/^PrivateData *= *//p'";

// $0 is the host. Prints the node's name, or "-" unless exactly one node matches.
constexpr char kFindOwnName[] =
    "nodes=$(scontrol -o show node) || exit; "
    "names=$(printf '%s\\n' \"$nodes\" | sed -n \"s/^NodeName=\\([^ ]*\\) .* NodeHostName=$0[. ].*/\\1/p\"); "
    "case $names in ''|*[!-a-zA-Z0-9_.]*) echo -;; *) echo \"$names\";; esac";

std::string first_line(const std::string& printed) { return printed.substr(0, printed.find('\n')); }

std::string read_all(const UniqueFd& file) {
  std::string text;
  std::array<char, 4096> part{};
  while (file) {
    const ssize_t size = pread(file.get(), part.data(), part.size(), static_cast<off_t>(text.size()));
    if (size <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(size));
  }
  return text;
}

std::vector<Scontrol::Node> nodes_in(const std::string& printed) {
  std::vector<Scontrol::Node> nodes;
  std::istringstream lines(printed);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Scontrol::Node node;
    if (!(words >> node.name)) continue;
    words >> node.address;
    nodes.push_back(node);
  }
  return nodes;
}

std::vector<StartedJob> jobs_in(const std::string& printed) {
  std::vector<StartedJob> jobs;
  std::istringstream lines(printed);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::uint32_t number = 0;
    std::int64_t started = 0;
    if (words >> number >> started)
      jobs.push_back({.number = number, .started = std::chrono::seconds(started)});
  }
  return jobs;
}

}  // namespace

Scontrol::Scontrol(asio::io_context& loop, const System& system, ScontrolTimes times)
    : system_(system), times_(times), death_(loop), timeout_(loop), pause_(loop) {}

// A running command continues.
Scontrol::~Scontrol() = default;

bool Scontrol::knows_node_name() {
  const char* name = std::getenv("SLURMD_NODENAME");
  return name != nullptr && *name != '\0';
}

std::string Scontrol::node_name() { return knows_node_name() ? std::getenv("SLURMD_NODENAME") : host_name(); }

void Scontrol::drain_node(const std::string& reason) {
  const std::string node = node_name();
  add({.name = "scontrol update nodename=" + node + " state=DRAIN reason=" + reason,
       .words = {"scontrol", "update", "nodename=" + node, "state=DRAIN", "reason=" + reason},
       .tries = kDrainTries});
}

void Scontrol::requeue(std::uint32_t job) {
  const std::string number = std::to_string(job);
  add({.name = "scontrol requeue " + number,
       .words = {"sh", "-c", kRequeue, number},
       .tries = kRequeueTries});
}

void Scontrol::find_nodes(std::uint32_t job, std::function<void(const std::vector<Node>&)> found) {
  const std::string number = std::to_string(job);
  add({.name = "squeue " + number,
       .words = {"sh", "-c", kFindNodes, number},
       .tries = 1,
       .tell = [found = std::move(found)](const std::string& printed) { found(nodes_in(printed)); }});
}

void Scontrol::find_jobs(const std::string& node, std::function<void(const std::vector<StartedJob>&)> found) {
  add({.name = "squeue of node " + node,
       .words = {"sh", "-c", kFindJobs, node},
       .tries = 1,
       .tell = [found = std::move(found)](const std::string& printed) { found(jobs_in(printed)); }});
}

void Scontrol::find_own_name(std::function<void(const std::string&)> found) {
  add({.name = "scontrol show node, for this node's name",
       .words = {"sh", "-c", kFindOwnName, host_name()},
       .tries = kEndlessTries,
       .tell = [found = std::move(found)](const std::string& printed) {
         const std::string name = first_line(printed);
         found(name == "-" ? std::string() : name);
       }});
}

void Scontrol::find_private_data(std::function<void(const std::string&)> found) {
  add({.name = "scontrol show config, for PrivateData",
       .words = {"sh", "-c", kFindPrivateData},
       .tries = 1,
       .tell = [found = std::move(found)](const std::string& printed) { found(first_line(printed)); }});
}

void Scontrol::find_address(const std::string& node, std::function<void(const std::string&)> found) {
  add({.name = "scontrol show node " + node,
       .words = {"sh", "-c", kFindAddress, node},
       .tries = 1,
       .tell = [found = std::move(found)](const std::string& printed) { found(first_line(printed)); }});
}

void Scontrol::add(Order order) {
  const auto begun = waiting_.begin() + (child_ > 0 ? 1 : 0);
  const auto same =
      std::find_if(begun, waiting_.end(), [&](const Order& other) { return other.name == order.name; });
  if (same != waiting_.end()) {
    if (order.tell)
      same->tell = [first = std::move(same->tell),
                    second = std::move(order.tell)](const std::string& printed) {
        first(printed);
        second(printed);
      };
    return;
  }
  if (waiting_.size() >= kMostWaiting) {
    log::error("too many commands to Slurm wait; not run: " + order.name);
    if (order.tell) order.tell({});
    return;
  }
  waiting_.push_back(std::move(order));
  if (waiting_.size() == 1) run_next();
}

void Scontrol::run_next() {
  while (!waiting_.empty()) {
    Order& next = waiting_.front();
    if (const Nanoseconds now = system_.now(); next.due > now) {
      pause_.expires_after(next.due - now);
      pause_.async_wait([this](const asio::error_code& failure) {
        if (!failure) run_next();
      });
      return;
    }
    const std::string failure = launch(next);
    if (failure.empty()) return;
    Order failed = std::move(next);
    waiting_.pop_front();
    const auto tell = failed.tell;
    if (!try_again(std::move(failed), failure) && tell) tell({});
  }
}

// Starts the command in a new process session (setsid), so that all processes of the command can be killed
// together. Returns an empty text, or the reason why the command cannot run.
std::string Scontrol::launch(Order& order) {
  printed_ = order.tell ? system_.memory_file("scontrol") : UniqueFd();
  std::vector<char*> arguments;
  for (std::string& word : order.words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO})
    posix_spawn_file_actions_addopen(&files, stream, "/dev/null", O_RDWR, 0);
  if (printed_) {
    posix_spawn_file_actions_adddup2(&files, printed_.get(), STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_RDWR, 0);
  }
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
    if (error == ENOENT) order.tries = 1;  // a missing program stays missing, so there is no second try
    return std::strerror(error);
  }
  order.tell ? log::debug("runs " + order.name) : log::info("runs " + order.name);
  UniqueFd pidfd = system_.open_process(child_);
  if (!pidfd || hand_over(pidfd, death_)) {
    kill(-child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
    return "cannot watch its process, so it is killed";
  }
  await_death(death_, [this] { ended(); });
  timeout_.expires_after(times_.patience);
  timeout_.async_wait([this](const asio::error_code& failure) {
    if (!failure && child_ > 0) kill(-child_, SIGKILL);
  });
  return {};
}

void Scontrol::ended() {
  timeout_.cancel();
  death_.close();
  int status = 0;
  waitpid(child_, &status, 0);
  child_ = -1;
  Order order = std::move(waiting_.front());
  waiting_.pop_front();
  const std::string printed = read_all(printed_);
  printed_.reset();
  const auto tell = order.tell;
  const bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  const bool comes_again =
      !good && try_again(std::move(order), WIFSIGNALED(status) ? std::string("has not ended in time")
                                                               : "has ended with status " +
                                                                     std::to_string(WEXITSTATUS(status)));
  run_next();
  if (tell && !comes_again) tell(good ? printed : std::string());
}

// Returns false after the last try.
bool Scontrol::try_again(Order order, const std::string& failure) {
  const bool last = --order.tries == 0;
  (order.tell ? log::debug : log::error)(order.name + ": " + failure + (last ? "" : "; it is tried again"));
  if (last) return false;
  order.due = system_.now() + times_.pause;
  waiting_.push_back(std::move(order));
  return true;
}

}  // namespace sharedgpu
