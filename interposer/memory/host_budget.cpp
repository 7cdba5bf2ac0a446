// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/host_budget.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace sharedgpu {
namespace {

// A small file's text; empty where it cannot be read.
class Text {
 public:
  explicit Text(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    while (size_ < sizeof data_) {
      const ssize_t got = read(fd, data_ + size_, sizeof data_ - size_);
      if (got <= 0) break;
      size_ += static_cast<std::size_t>(got);
    }
    close(fd);
  }
  std::string_view view() const { return {data_, size_}; }

 private:
  char data_[8192];
  std::size_t size_ = 0;
};

// Takes the first line off `text`.
std::string_view next_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

std::optional<std::uint64_t> number(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

// The number behind `key` in lines such as "inactive_file 4096" and "MemTotal:  16 kB".
std::uint64_t field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    std::string_view line = next_line(text);
    if (line.substr(0, key.size()) == key) return number(line.substr(key.size())).value_or(0);
  }
  return 0;
}

// A limit file holds a number, or "max"; version 1 says "no limit" by a number near 2^63.
std::optional<Bytes> limit_in(const std::string& path) {
  const Text text(path);
  const std::optional<std::uint64_t> value = number(text.view());
  if (!value || *value >= (1ull << 62)) return std::nullopt;
  return Bytes{*value};
}

bool lists(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    const std::size_t end = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, end) == wanted) return true;
    controllers.remove_prefix(std::min(end + 1, controllers.size()));
  }
  return false;
}

// Kept free below any bound: the job itself allocates meanwhile.
Bytes margin(Bytes limit) { return {std::clamp(limit.count / 32, mebibytes(32).count, gibibytes(1).count)}; }

}  // namespace

CgroupBudget::CgroupBudget(const std::string& root) : meminfo_(root + "/proc/meminfo") {
  const Text text(root + "/proc/self/cgroup");
  std::string_view rest = text.view();
  while (!rest.empty()) {
    const std::string_view line = next_line(rest);  // "4:memory:/slurm/job_1" or "0::/job_1"
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    if (controllers.empty()) {
      find_groups(root + "/sys/fs/cgroup", path, true);
      find_groups(root + "/sys/fs/cgroup/unified", path, true);
    } else if (lists(controllers, "memory")) {
      find_groups(root + "/sys/fs/cgroup/memory", path, false);
    }
  }
}

// The group and its ancestors, the hierarchy's own folder included. In a container the path may be the
// host's, of which only the upper end is seen here: what is not there is left out.
void CgroupBudget::find_groups(const std::string& hierarchy, const std::string& path, bool v2) {
  std::string rest = path == "/" ? std::string{} : path;
  while (true) {
    const Group group{hierarchy + rest, v2};
    const char* const usage = v2 ? "/memory.current" : "/memory.usage_in_bytes";
    if (access((group.folder + usage).c_str(), R_OK) == 0) groups_.push_back(group);
    if (rest.empty()) return;
    rest.resize(std::min(rest.rfind('/'), rest.size() - 1));
  }
}

// memory.high counts as a limit: above it the kernel slows the job to a crawl, and pinned memory cannot be
// reclaimed.
std::optional<Bytes> CgroupBudget::limit_of(const Group& group) {
  if (!group.v2) return limit_in(group.folder + "/memory.limit_in_bytes");
  const std::optional<Bytes> max = limit_in(group.folder + "/memory.max");
  const std::optional<Bytes> high = limit_in(group.folder + "/memory.high");
  if (max && high) return std::min(*max, *high);
  return max ? max : high;
}

// Page cache is charged too, but goes when memory is needed: a job that reads large files sits at its limit
// all the time.
Bytes CgroupBudget::used_of(const Group& group) {
  const Text usage(group.folder + (group.v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  const Text stat(group.folder + "/memory.stat");
  const std::string_view inactive = group.v2 ? "inactive_file " : "total_inactive_file ";
  const std::string_view active = group.v2 ? "active_file " : "total_active_file ";
  const Bytes cache{field(stat.view(), inactive) + field(stat.view(), active)};
  return minus({number(usage.view()).value_or(0)}, cache);
}

template <class Visit>
void CgroupBudget::for_each_group(Visit visit) const {
  for (const Group& group : groups_) {
    if (const std::optional<Bytes> limit = limit_of(group)) visit(Bound{*limit, used_of(group)});
  }
}

template <class Visit>
void CgroupBudget::for_each_bound(Visit visit) const {
  for_each_group(visit);
  const Text meminfo(meminfo_);
  const Bytes total = kibibytes(field(meminfo.view(), "MemTotal:"));
  const Bytes available = kibibytes(field(meminfo.view(), "MemAvailable:"));
  if (total.count != 0) visit(Bound{total, minus(total, available)});
}

Bytes CgroupBudget::room() const {
  Bytes least{~0ull};
  for_each_bound([&](const Bound& bound) {
    least = std::min(least, minus(minus(bound.limit, bound.used), margin(bound.limit)));
  });
  return least;
}

bool CgroupBudget::tight(Bytes more) const {
  bool any = false;
  for_each_bound([&](const Bound& bound) {
    any |= minus(bound.limit, bound.used + more) < Bytes{3 * margin(bound.limit).count};
  });
  return any;
}

// What is taken for swap leaves all of the margin, so this is the job's own doing. A little of it, as a
// program takes all the time, does not count; nor does the machine's memory, which others use as well.
bool CgroupBudget::used_up() const {
  bool any = false;
  for_each_group([&](const Bound& bound) {
    any |= minus(bound.limit, bound.used) < Bytes{margin(bound.limit).count / 4 * 3};
  });
  return any;
}

// The machine's memory is no limit here: where nobody set one, an allocation is not refused for it.
std::optional<Bytes> CgroupBudget::limit() const {
  std::optional<Bytes> least;
  for (const Group& group : groups_) {
    const std::optional<Bytes> limit = limit_of(group);
    if (limit && (!least || *limit < *least)) least = limit;
  }
  if (least) least = minus(*least, margin(*least));
  return least;
}

}  // namespace sharedgpu
