// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/processes.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>
#include <vector>

#include "arbiter/daemon/cgroups.h"
#include "protocol/split.h"

namespace sharedgpu {
namespace {

std::string folder_of(pid_t pid) { return "/proc/" + std::to_string(pid); }

// The text of the file, or the part of it that can be read.
std::string text_of(const System& system, const std::string& path) {
  std::string text;
  static_cast<void>(system.read_file(path, text));
  return text;
}

// The possible mount points of the cgroup hierarchy with these controllers, the most likely first.
std::vector<std::string> mounts_of(std::string_view controllers) {
  const std::string base = "/sys/fs/cgroup";
  if (controllers.empty()) return {base, base + "/unified"};
  constexpr std::string_view kNamed = "name=";  // prefix of a hierarchy without controllers
  if (controllers.starts_with(kNamed)) controllers.remove_prefix(kNamed.size());
  return {base + "/" + std::string(controllers)};
}

// Sets `owned` to true if root owns each folder from `mount` down to `path`, and else to false. Fails with
// ENOENT if there is no such folder.
Status owned_by_root(const System& system, const std::string& mount, const std::string& path, bool& owned) {
  for (std::size_t end = 0;; end = path.find('/', end + 1)) {
    uid_t owner = 0;
    if (Status read = system.owner_of(mount + path.substr(0, end), owner); !read.ok()) return read;
    owned = owner == 0;
    if (!owned || end == std::string::npos) return {};
  }
}

// Finds the number of a step's job: it is in the title of the slurmstepd in the subfolder "slurm" of the
// step's folder. Only root can put processes into this subfolder.
Status job_by_title(const System& system, const std::string& folder, std::optional<std::uint32_t>& job) {
  const auto read = [&system](const std::string& path, std::string& text) {
    Status done = system.read_file(path, text);
    return is_shortage(done.code()) ? done : Status();
  };
  std::string text;
  if (Status done = read(folder + "/slurm/cgroup.procs", text); !done.ok()) return done;
  std::istringstream processes(text);
  for (pid_t pid = 0; processes >> pid;) {
    std::string status, title;
    if (Status done = read(folder_of(pid) + "/status", status); !done.ok()) return done;
    if (Status done = read(folder_of(pid) + "/cmdline", title); !done.ok()) return done;
    if (runs_as(status, 0)) job = job_of_title(title);
    if (job) return {};
  }
  return {};
}

// Sets `step` if root owns the job's folder and all folders above it. Under cgroup v1 the step's own folder
// belongs to the job's user.
Status believe(const System& system, const StepFolder& named, std::optional<StepName>& step) {
  const std::string job_folder = named.path.substr(0, named.path.rfind('/'));
  for (const std::string& mount : mounts_of(named.controllers)) {
    bool owned = false;
    Status read = owned_by_root(system, mount, job_folder, owned);
    if (is_shortage(read.code())) return read;
    if (!read.ok()) continue;
    if (!owned) return {};
    std::optional<std::uint32_t> job = named.job;
    if (!job)
      if (Status titled = job_by_title(system, mount + named.path, job); !titled.ok()) return titled;
    if (job && *job != 0) step = StepName{.job = *job, .step = named.step};
    return {};
  }
  return {};
}

// The pids of a process in its PID namespaces, from the text of its /proc/PID/status.
std::vector<pid_t> pids_in(const std::string& status) {
  const std::size_t at = status.find("\nNSpid:");
  std::vector<pid_t> pids;
  if (at == std::string::npos) return pids;
  std::istringstream numbers(status.substr(at + 7, status.find('\n', at + 1) - at - 7));
  for (pid_t number = 0; numbers >> number;) pids.push_back(number);
  return pids;
}

// The number in a field of /proc/PID/stat, with the fields counted as in proc(5); 0 if the field is missing.
std::uint64_t stat_field(std::string_view stat, std::size_t field) {
  // The command name may contain anything, so fields are counted from its closing parenthesis.
  constexpr std::size_t kLastBefore = 2;
  const std::size_t end = stat.rfind(')');
  if (end == std::string_view::npos) return 0;
  const std::vector<std::string_view> fields = split(stat.substr(end + 1), ' ');
  if (fields.size() <= field - kLastBefore) return 0;
  const std::string_view text = fields[field - kLastBefore];
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// The state letter, which follows the command name; 0 if missing. The name may contain any characters.
char state_in(const std::string& stat) {
  const std::size_t end = stat.rfind(") ");
  return end == std::string::npos || end + 2 >= stat.size() ? '\0' : stat[end + 2];
}

bool is_signalled(char state) { return state == 'T' || state == 't'; }
bool has_ended(char state) { return state == 'Z' || state == 'X'; }

// For most processes, the state of the first thread suffices. If the first thread is stopped or has ended,
// reads the other threads, too, since a debugger may stop some threads and let others run. Reads a bounded
// number of threads, so that the arbiter stays responsive.
bool all_threads_stopped(const System& system, const std::string& process, char first) {
  if (!is_signalled(first) && !has_ended(first)) return false;
  constexpr std::size_t kMostThreads = 64;
  const auto threads = system.list_folder(process + "/task", kMostThreads);
  if (!threads) return false;
  bool any = false;
  for (const std::string& thread : *threads) {
    const char state = state_in(text_of(system, process + "/task/" + thread + "/stat"));
    if (is_signalled(state))
      any = true;
    else if (!has_ended(state))
      return false;
  }
  return any;
}

// Finds out which user has frozen the process. This user owns the topmost frozen folder: the freezer file of
// a folder also shows freezes of the folders above it. Users may own folders below a step's folder, and may
// nest thousands of them. So the search goes from the top down, and ends at the first folder that root does
// not own.
Stopped frozen_state(const System& system, const std::string& mount, const std::string& path,
                     const std::string& file, const std::string& frozen) {
  const auto is_frozen = [&](const std::string& folder) {
    return text_of(system, mount + folder + file).find(frozen) != std::string::npos;
  };
  if (!is_frozen(path)) return Stopped::no;
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string folder = path.substr(0, end);
    uid_t owner = 0;
    const bool is_there = system.owner_of(mount + folder + file, owner).ok();
    if (is_there && owner != 0) return Stopped::by_user;
    if (is_there && is_frozen(folder)) return Stopped::by_root;
    if (end == std::string::npos) return Stopped::by_user;
  }
}

// Reads the cgroups, because the process state does not show a freeze: a frozen process seems to sleep or to
// wait for a disk.
Stopped frozen_state(const System& system, const std::string& process) {
  const std::string cgroups = text_of(system, process + "/cgroup");
  Stopped state = Stopped::no;
  for (std::string_view line : split(cgroups, '\n')) {
    const std::vector<std::string_view> parts = split(line, ':');  // hierarchy:controllers:path
    if (parts.size() < 3) continue;
    const std::string path(line.substr(parts[0].size() + parts[1].size() + 2));
    if (parts[0] == "0") {
      for (const std::string& mount : mounts_of({}))
        state = std::max(state, frozen_state(system, mount, path, "/cgroup.events", "frozen 1"));
    } else if (parts[1] == "freezer") {
      state = std::max(state,
                       frozen_state(system, mounts_of(parts[1]).front(), path, "/freezer.state", "FROZEN"));
    }
  }
  return state;
}

}  // namespace

Status step_of_process(const System& system, std::string_view cgroup, std::optional<StepName>& step) {
  step.reset();
  for (std::string_view line : split(cgroup, '\n')) {
    const auto named = step_folder(line);
    if (!named) continue;
    if (Status believed = believe(system, *named, step); !believed.ok() || step) return believed;
  }
  return {};
}

std::uint64_t start_time_in(std::string_view stat) { return stat_field(stat, 22); }

std::uint64_t program_in(std::string_view stat) { return stat_field(stat, 28); }

std::uint64_t start_time_of(const System& system, pid_t pid) {
  return start_time_in(text_of(system, folder_of(pid) + "/stat"));
}

std::uint64_t program_of(const System& system, pid_t pid) {
  return program_in(text_of(system, folder_of(pid) + "/stat"));
}

std::optional<std::uint64_t> known_start_time_of(const System& system, pid_t pid) {
  std::string stat;
  if (is_shortage(system.read_file(folder_of(pid) + "/stat", stat).code())) return std::nullopt;
  return start_time_in(stat);
}

bool may_run(const System& system, pid_t pid, std::uint64_t program) {
  std::string stat;
  return is_shortage(system.read_file(folder_of(pid) + "/stat", stat).code()) || program_in(stat) == program;
}

PidNames pid_names_of(const System& system, pid_t pid) {
  return pid_names_in(system, pid, text_of(system, folder_of(pid) + "/status"));
}

PidNames pid_names_in(const System& system, pid_t pid, const std::string& status) {
  PidNames names{.pids = pids_in(status), .namespaces = {}};
  if (names.pids.size() > 1) names.namespaces = system.pid_namespaces(pid, names.pids.size());
  return names;
}

pid_t pid_seen_by(const PidNames& viewer, const PidNames& process) {
  const std::size_t level = viewer.pids.size();
  if (level == 0 || process.pids.size() < level) return 0;
  const bool sees = level == 1 || (level <= viewer.namespaces.size() && level <= process.namespaces.size() &&
                                   viewer.namespaces[level - 1] == process.namespaces[level - 1]);
  return sees ? process.pids[level - 1] : 0;
}

UniqueFd open_process(const System& system, const ProcessName& process) {
  const auto pid = static_cast<pid_t>(process.pid);
  UniqueFd pidfd = system.open_process(pid);
  if (pidfd && start_time_of(system, pid) != process.started) pidfd.reset();
  return pidfd;
}

Stopped stopped_state(const System& system, pid_t pid) {
  const std::string process = folder_of(pid);
  const char first = state_in(text_of(system, process + "/stat"));
  if (first == '\0' || first == 'R') return Stopped::no;
  if (const Stopped frozen = frozen_state(system, process); frozen != Stopped::no) return frozen;
  return all_threads_stopped(system, process, first) ? Stopped::by_user : Stopped::no;
}

bool runs_as(const std::string& status, uid_t uid) {
  const std::size_t at = status.find("\nUid:");
  if (at == std::string::npos) return false;
  std::istringstream numbers(status.substr(at + 5));
  for (uid_t number = 0; numbers >> number;)
    if (number == uid) return true;
  return false;
}

}  // namespace sharedgpu
