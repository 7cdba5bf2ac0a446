// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/peers.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <sstream>
#include <vector>

#include "arbiter/daemon/read_all.h"
#include "protocol/split.h"
#include "protocol/step_names.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5
#endif

namespace sharedgpu {
namespace {

// What can be read of it: files of a process that is just ending fail in the middle.
std::string read_file(const std::string& path) {
  int ignored = 0;
  return read_all(UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC)).get(), ignored);
}

std::optional<std::uint32_t> parse_number(std::string_view text) {
  std::uint32_t number = 0;
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || rest != text.data() + text.size()) return std::nullopt;
  return number;
}

bool starts_with(std::string_view text, std::string_view head) { return text.substr(0, head.size()) == head; }

bool ends_with(std::string_view text, std::string_view tail) {
  return text.size() >= tail.size() && text.substr(text.size() - tail.size()) == tail;
}

// The step that a folder "step_S" or "step_S+C" (a component of a heterogeneous job) is of.
std::optional<std::uint32_t> step_of_folder(std::string_view folder) {
  if (!starts_with(folder, "step_")) return std::nullopt;
  return parse_step(folder.substr(5, folder.find('+') - 5));
}

// v1: .../slurm[_NODE]/uid_U/job_J/step_S; v2: .../[NODE_]slurmstepd.scope/job_J/step_S.
std::optional<StepName> step_of_path(std::string_view path) {
  std::vector<std::string_view> folders = split(path, '/');
  for (std::size_t i = 0; i < folders.size(); ++i) {
    if (folders[i] == "user.slice") return std::nullopt;
    if (!starts_with(folders[i], "job_") || i == 0) continue;
    bool v2 = ends_with(folders[i - 1], "slurmstepd.scope");
    bool v1 = i >= 2 && starts_with(folders[i - 1], "uid_") && starts_with(folders[i - 2], "slurm");
    if (!v1 && !v2) continue;
    auto job = parse_number(folders[i].substr(4));
    if (!job || *job == 0 || i + 1 >= folders.size()) return std::nullopt;
    auto step = step_of_folder(folders[i + 1]);
    if (!step) return std::nullopt;
    return StepName{.job = *job, .step = *step};
  }
  return std::nullopt;
}

// Whether any of the process's user numbers is `uid`. Where the kernel cannot say which process is at the
// other end, its pid may have passed to another user's since.
bool runs_as(pid_t pid, uid_t uid, const std::string& root = {}) {
  const std::string status = read_file(root + "/proc/" + std::to_string(pid) + "/status");
  const std::size_t at = status.find("\nUid:");
  if (at == std::string::npos) return false;
  std::istringstream numbers(status.substr(at + 5));
  for (uid_t number = 0; numbers >> number;)
    if (number == uid) return true;
  return false;
}

// Slurm 26.05 with cgroup v2: .../[NODE_]slurmstepd.scope/SLUID/step_S, unless CgroupJobIdPaths=yes. The
// folder down to step_S, or nothing.
std::string sluid_folder(std::string_view path) {
  constexpr std::size_t kSluidSize = 14;
  std::string folder;
  bool below_scope = false;
  bool below_job = false;
  for (std::string_view name : split(path, '/')) {
    if (name.empty()) continue;
    if (name == "user.slice") return {};
    folder.append("/").append(name);
    if (below_job) return step_of_folder(name) ? folder : std::string();
    below_job = below_scope && name.size() == kSluidSize && name[0] == 's';
    if (below_scope && !below_job) return {};
    below_scope = ends_with(name, "slurmstepd.scope");
  }
  return {};
}

// The number before the dot in slurmstepd's title, "slurmstepd: [12.batch]".
std::optional<std::uint32_t> job_of_title(std::string_view title) {
  constexpr std::string_view kHead = "slurmstepd: [";
  if (!starts_with(title, kHead)) return std::nullopt;
  title.remove_prefix(kHead.size());
  return parse_number(title.substr(0, title.find('.')));
}

// The job of such a folder, from the title of the slurmstepd in it: in "slurm", where only root puts
// processes.
std::optional<StepName> step_of_sluid_folder(const std::string& folder, const std::string& root) {
  std::istringstream processes(read_file(root + "/sys/fs/cgroup" + folder + "/slurm/cgroup.procs"));
  for (pid_t pid = 0; processes >> pid;) {
    if (!runs_as(pid, 0, root)) continue;
    auto job = job_of_title(read_file(root + "/proc/" + std::to_string(pid) + "/cmdline"));
    auto step = step_of_folder(std::string_view(folder).substr(folder.rfind('/') + 1));
    if (job && *job != 0 && step) return StepName{.job = *job, .step = *step};
  }
  return std::nullopt;
}

// The pids of a process, in our own PID namespace first and in its own last. Empty: there is no such process.
std::vector<pid_t> pids_of(pid_t pid) {
  const std::string status = read_file("/proc/" + std::to_string(pid) + "/status");
  const std::size_t at = status.find("\nNSpid:");
  std::vector<pid_t> pids;
  if (at == std::string::npos) return pids;
  std::istringstream numbers(status.substr(at + 7, status.find('\n', at + 1) - at - 7));
  for (pid_t number = 0; numbers >> number;) pids.push_back(number);
  return pids;
}

// The PID namespace so many levels above that of the process, as an inode; 0: not to be had.
ino_t pid_namespace(pid_t pid, std::size_t above) {
  UniqueFd found(open(("/proc/" + std::to_string(pid) + "/ns/pid").c_str(), O_RDONLY | O_CLOEXEC));
  for (; found && above > 0; --above) found.reset(ioctl(found.get(), NS_GET_PARENT));
  struct stat info = {};
  return found && fstat(found.get(), &info) == 0 ? info.st_ino : 0;
}

bool is_dead(const UniqueFd& pidfd) {
  pollfd entry = {.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) != 0;
}

// A number of /proc/PID/stat, counted as in proc(5); 0: there is none.
std::uint64_t stat_field(pid_t pid, std::size_t field) {
  // The command's name may hold anything; the fields after it are counted from its closing parenthesis.
  constexpr std::size_t kLastBefore = 2;
  const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t end = stat.rfind(')');
  if (end == std::string::npos) return 0;
  const std::vector<std::string_view> fields = split(std::string_view(stat).substr(end + 1), ' ');
  if (fields.size() <= field - kLastBefore) return 0;
  const std::string_view text = fields[field - kLastBefore];
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

std::optional<StepName> step_of_cgroup(std::string_view text) {
  for (std::string_view line : split(text, '\n')) {
    // hierarchy:controllers:path
    std::size_t first = line.find(':');
    std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    if (auto step = step_of_path(line.substr(second + 1))) return step;
  }
  return std::nullopt;
}

// v1: .../step_S/task_T; v2: .../step_S/user/task_T.
std::optional<std::uint32_t> task_of_cgroup(std::string_view text) {
  constexpr std::string_view kTask = "task_";
  for (const std::string_view line : split(text, '\n')) {
    bool in_step = false;
    for (const std::string_view folder : split(line, '/')) {
      if (in_step && starts_with(folder, kTask))
        if (const auto task = parse_number(folder.substr(kTask.size()))) return task;
      in_step = in_step || step_of_folder(folder).has_value();
    }
  }
  return std::nullopt;
}

std::optional<StepName> step_of_process(pid_t pid, const std::string& root) {
  const std::string text = read_file(root + "/proc/" + std::to_string(pid) + "/cgroup");
  if (auto step = step_of_cgroup(text)) return step;
  for (std::string_view line : split(text, '\n')) {
    if (!starts_with(line, "0::")) continue;
    if (std::string folder = sluid_folder(line.substr(3)); !folder.empty())
      return step_of_sluid_folder(folder, root);
  }
  return std::nullopt;
}

std::uint64_t start_time_of(pid_t pid) { return stat_field(pid, 22); }

pid_t pid_seen_by(pid_t viewer, pid_t pid) {
  const std::size_t level = pids_of(viewer).size();
  if (level == 1) return pid;
  const std::vector<pid_t> pids = pids_of(pid);
  if (level == 0 || pids.size() < level) return 0;
  const ino_t theirs = pid_namespace(viewer, 0);
  return theirs != 0 && theirs == pid_namespace(pid, pids.size() - level) ? pids[level - 1] : 0;
}

UniqueFd open_process(pid_t pid, std::uint64_t started) {
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (pidfd && start_time_of(pid) != started) pidfd.reset();
  return pidfd;
}

std::uint64_t program_of(pid_t pid) { return stat_field(pid, 28); }

std::string identify(int fd, Peer& peer, bool& passes) {
  ucred credentials = {};
  socklen_t size = sizeof credentials;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return std::string("SO_PEERCRED: ") + std::strerror(errno);
  peer.pid = credentials.pid;
  peer.uid = credentials.uid;
  if (peer.pid <= 0) return "the process is in another PID namespace, out of the arbiter's sight";

  // The descriptor first: what is read of the pid after it is of the right process if that is then still
  // alive.
  int pidfd = -1;
  size = sizeof pidfd;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) != 0)
    pidfd = static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0));
  if (pidfd < 0) {
    passes = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    return std::string("pidfd_open: ") + std::strerror(errno);
  }
  peer.pidfd.reset(pidfd);
  peer.started = start_time_of(peer.pid);
  peer.program = program_of(peer.pid);
  peer.step = step_of_process(peer.pid);
  if (peer.step) peer.task = task_of_cgroup(read_file("/proc/" + std::to_string(peer.pid) + "/cgroup"));
  if (!runs_as(peer.pid, peer.uid)) return "the process is no longer of the user that connected";
  if (is_dead(peer.pidfd)) return "the process has ended";
  return {};
}

}  // namespace sharedgpu
