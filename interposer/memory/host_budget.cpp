// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/host_budget.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "protocol/host_memory.h"

namespace sharedgpu {
namespace {

using namespace host_memory;

// Returns true if the file does not exist, or if its control group has been removed. In both cases the file
// sets no limit.
bool is_absent(int error) { return error == ENOENT || error == ENOTDIR || error == ENODEV; }

// Returns true for a temporary error, and false if the job can never read the file.
bool passes(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM || error == EINTR; }

// Reads a small file. The text is empty if the file does not exist.
class Text {
 public:
  explicit Text(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      fail();
      return;
    }
    while (size_ < sizeof data_) {
      const ssize_t got = read(fd, data_ + size_, sizeof data_ - size_);
      if (got < 0) fail();
      if (got <= 0) break;
      size_ += static_cast<std::size_t>(got);
    }
    close(fd);
  }
  std::string_view view() const { return {data_, size_}; }
  // The errno value of a failed read; zero if the file was read or does not exist.
  int error() const { return error_; }

 private:
  void fail() { error_ = is_absent(errno) ? 0 : errno; }

  int error_ = 0;
  char data_[8192];
  std::size_t size_ = 0;
};

}  // namespace

CgroupBudget::CgroupBudget(std::string root, Tell tell) : root_(std::move(root)), tell_(tell) {
  const std::lock_guard lock(mutex_);
  find_groups();
}

void CgroupBudget::note(const std::string& path, int error) const {
  if (!std::exchange(told_, true) && tell_ != nullptr) tell_(path.c_str(), error);
}

// Finds the memory cgroups above this process. The caller of this and of all other private functions, except
// least_limit(), must hold mutex_.
void CgroupBudget::find_groups() const {
  const std::string file = root_ + "/proc/self/cgroup";
  const Text text(file);
  if (text.error() != 0) return note(file, text.error());
  found_ = true;
  std::string_view rest = text.view();
  while (!rest.empty()) {
    const std::string_view line = next_line(rest);  // "4:memory:/slurm/job_1" or "0::/job_1"
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    if (controllers.empty()) {
      find_groups(root_ + "/sys/fs/cgroup", path, Version::v2);
      find_groups(root_ + "/sys/fs/cgroup/unified", path, Version::v2);
    } else if (lists(controllers, "memory")) {
      find_groups(root_ + "/sys/fs/cgroup/memory", path, Version::v1);
    }
  }
}

// Adds the group and its ancestors, including the root of the hierarchy. In a container, the path may be the
// path on the host, and its lower levels may be missing in the container. Missing directories are left out.
// A limit above the directory of a step applies to the whole job.
void CgroupBudget::find_groups(const std::string& hierarchy, const std::string& path, Version version) const {
  const std::size_t step = path.find("/step_");
  std::string rest = path == "/" ? std::string{} : path;
  while (true) {
    const std::string folder = hierarchy + rest;
    if (access((folder + files_of(version).usage).c_str(), R_OK) == 0 || !is_absent(errno))
      groups_.push_back({.folder = folder,
                         .version = version,
                         .of_job = step != path.npos && rest.size() <= step,
                         .known = false,
                         .unread = false,
                         .limit = {},
                         .used = {}});
    if (rest.empty()) return;
    rest.resize(std::min(rest.rfind('/'), rest.size() - 1));
  }
}

void CgroupBudget::read_limit(Group& group) const {
  std::optional<Bytes> least;
  for (const char* name : files_of(group.version).limits) {
    if (name == nullptr) continue;
    const std::string file = group.folder + name;
    const Text text(file);
    if (text.error() != 0) {
      if (!group.known) {
        note(file, text.error());
        group.unread = passes(text.error());
      }
      return;
    }
    least = lower(least, limit_in(text.view()));
  }
  group.known = true;
  group.unread = false;
  group.limit = least;
}

// If the group's use cannot be read, returns false and keeps the value that was read last.
bool CgroupBudget::read_use(Group& group) const {
  const Text usage(group.folder + files_of(group.version).usage);
  const Text stat(group.folder + "/memory.stat");
  if (usage.error() != 0 || stat.error() != 0) return false;
  group.used = used_in(group.version, usage.view(), stat.view());
  return true;
}

template <class Visit>
void CgroupBudget::for_each_group(Visit visit) const {
  if (!found_) find_groups();
  for (Group& group : groups_) {
    read_limit(group);
    if (!group.limit) continue;
    const bool is_new = read_use(group);
    visit(Bound{*group.limit, group.used + Bytes{uncharged_.load(std::memory_order_relaxed)}, is_new});
  }
}

template <class Visit>
void CgroupBudget::for_each_bound(Visit visit) const {
  for_each_group(visit);
  const Text meminfo(root_ + "/proc/meminfo");
  machine_.is_new = meminfo.error() == 0;
  if (machine_.is_new) {
    machine_.limit = total_in(meminfo.view());
    machine_.used = minus(machine_.limit, available_in(meminfo.view()));
  }
  if (machine_.limit.count != 0 || !machine_.is_new) visit(machine_);
}

Bytes CgroupBudget::room() const {
  const std::lock_guard lock(mutex_);
  return read_room();
}

Bytes CgroupBudget::recent_room(Nanoseconds now) const {
  constexpr Nanoseconds kRecent = std::chrono::milliseconds(100);
  const Bytes uncharged{uncharged_.load(std::memory_order_relaxed)};
  const std::lock_guard lock(mutex_);
  if (!known_ || now - known_->at >= kRecent) known_ = {now, read_room(), uncharged};
  return minus(known_->room, minus(uncharged, known_->uncharged));
}

Bytes CgroupBudget::read_room() const {
  Bytes least{~0ull};
  for_each_bound([&](const Bound& bound) {
    least = std::min(least, bound.is_new ? host_memory::room(bound.limit, bound.used) : Bytes{});
  });
  const bool all_read =
      std::none_of(groups_.begin(), groups_.end(), [](const Group& group) { return group.unread; });
  return found_ && all_read ? least : Bytes{};
}

bool CgroupBudget::tight(Bytes more) const {
  const std::lock_guard lock(mutex_);
  bool any = false;
  for_each_bound([&](const Bound& bound) {
    any |= minus(bound.limit, bound.used + more) < Bytes{3 * margin(bound.limit).count};
  });
  return any;
}

// Swap never uses the margin, so any use of the margin is the job's own. Returns true only if more than a
// quarter of the margin is used, since programs allocate small amounts all the time. Ignores the memory of
// the machine, since other jobs use it, too.
bool CgroupBudget::used_up() const {
  const std::lock_guard lock(mutex_);
  bool any = false;
  for_each_group([&](const Bound& bound) {
    any |= minus(bound.limit, bound.used) < Bytes{margin(bound.limit).count / 4 * 3};
  });
  return any;
}

Bytes CgroupBudget::used() const {
  const std::lock_guard lock(mutex_);
  Bound least{.limit = {~0ull}, .used = {}};
  for_each_group([&](const Bound& bound) {
    if (bound.limit < least.limit) least = bound;
  });
  return least.used;
}

template <class Wanted>
std::optional<Bytes> CgroupBudget::least_limit(Wanted wanted) const {
  const std::lock_guard lock(mutex_);
  if (!found_) find_groups();
  std::optional<Bytes> least;
  for (Group& group : groups_) {
    if (!wanted(group)) continue;
    read_limit(group);
    least = lower(least, group.limit);
  }
  if (least) least = minus(*least, margin(*least));
  return least;
}

// Only cgroups set a limit here. Without a cgroup limit, no allocation is refused for lack of memory on the
// machine.
std::optional<Bytes> CgroupBudget::limit() const {
  return least_limit([](const Group&) { return true; });
}

std::optional<Bytes> CgroupBudget::job_limit() const {
  return least_limit([](const Group& group) { return group.of_job; });
}

}  // namespace sharedgpu
