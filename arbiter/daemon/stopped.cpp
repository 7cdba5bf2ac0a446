// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/stopped.h"

#include <fcntl.h>

#include <filesystem>
#include <string_view>
#include <vector>

#include "arbiter/daemon/read_all.h"
#include "protocol/channel.h"
#include "protocol/split.h"

namespace sharedgpu {
namespace {

std::string read_file(const std::string& path) {
  int ignored = 0;
  return read_all(UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC)).get(), ignored);
}

// The letter after the name, which may hold anything; 0: there is none.
char state_in(const std::string& stat) {
  const std::size_t end = stat.rfind(") ");
  return end == std::string::npos || end + 2 >= stat.size() ? '\0' : stat[end + 2];
}

bool is_signalled(char state) { return state == 'T' || state == 't'; }
bool has_ended(char state) { return state == 'Z' || state == 'X'; }

// The first thread stands for most processes; a debugger may hold some threads and let others run. So many
// are looked at: the arbiter has others to serve.
bool all_threads_stopped(const std::string& process, char first) {
  if (!is_signalled(first) && !has_ended(first)) return false;
  constexpr int kMostThreads = 64;
  bool any = false;
  std::error_code error;
  std::filesystem::directory_iterator it(process + "/task", error);
  for (int seen = 0; !error && it != std::filesystem::directory_iterator() && seen < kMostThreads;
       it.increment(error), ++seen) {
    const char state = state_in(read_file(it->path() / "stat"));
    if (is_signalled(state))
      any = true;
    else if (!has_ended(state))
      return false;
  }
  return any && !error;
}

// A frozen process looks as if it slept, or waited for a disk. What these files tell includes what is due to
// the folders above.
bool is_frozen(const std::string& process, const std::string& root) {
  const std::string cgroups = read_file(process + "/cgroup");
  for (std::string_view line : split(cgroups, '\n')) {
    const std::vector<std::string_view> parts = split(line, ':');  // hierarchy:controllers:path
    if (parts.size() < 3) continue;
    const std::string path(line.substr(parts[0].size() + parts[1].size() + 2));
    const std::string base = root + "/sys/fs/cgroup";
    if (parts[0] == "0") {
      for (const char* mount : {"", "/unified"})
        if (read_file(base + mount + path + "/cgroup.events").find("frozen 1") != std::string::npos)
          return true;
    } else if (parts[1] == "freezer") {
      if (read_file(base + "/freezer" + path + "/freezer.state").rfind("FROZEN", 0) == 0) return true;
    }
  }
  return false;
}

}  // namespace

bool is_stopped(pid_t pid, const std::string& root) {
  const std::string process = root + "/proc/" + std::to_string(pid);
  const char first = state_in(read_file(process + "/stat"));
  if (first == '\0' || first == 'R') return false;
  return all_threads_stopped(process, first) || is_frozen(process, root);
}

}  // namespace sharedgpu
