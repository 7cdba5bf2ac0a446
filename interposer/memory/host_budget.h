// SPDX-License-Identifier: Apache-2.0
// How much host memory this job may still take for swap, so that eviction is refused before the kernel's
// out-of-memory killer would be asked.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "protocol/host_memory.h"
#include "protocol/units.h"

namespace sharedgpu {

// Safe for any thread.
class HostBudget {
 public:
  virtual ~HostBudget() = default;
  // What may be taken now, a safety margin kept.
  virtual Bytes room() const = 0;
  // With `more` taken, less would be left than the job's own next allocations may need: idle pool memory
  // should go back.
  virtual bool tight(Bytes more) const = 0;
  // The job itself has begun to use up the margin: it needs memory that is held for it.
  virtual bool used_up() const = 0;
  // What the job could ever use; nullopt: nobody limits it.
  virtual std::optional<Bytes> limit() const = 0;
  // The same of what all steps of the job here have together; nullopt too where it cannot be told apart.
  virtual std::optional<Bytes> job_limit() const = 0;
};

// Reads the memory cgroups (v1 or v2) of this process, all their ancestors, and /proc/meminfo, anew each
// time: a job's limits may be changed while it runs. The process's place in the tree is read once.
//
// Where a file cannot be read, as for want of descriptors, its limit is what it was last; and nothing may be
// taken meanwhile, since nobody knows how much is left.
class CgroupBudget final : public HostBudget {
 public:
  // Told once, of a file that could not be read when nothing was known of it yet: `error` is an errno value.
  using Tell = void (*)(const char* path, int error);

  // `root` stands before /proc and /sys, for tests.
  explicit CgroupBudget(std::string root = {}, Tell tell = nullptr);

  Bytes room() const override;
  bool tight(Bytes more) const override;
  bool used_up() const override;
  std::optional<Bytes> limit() const override;
  std::optional<Bytes> job_limit() const override;

 private:
  // A folder of a memory cgroup, how its files are called, and what they said last.
  struct Group {
    std::string folder;
    host_memory::Version version{};
    bool of_job = false;  // all steps of the job are in it
    bool known = false;
    bool unread = false;  // not known only since there was no descriptor or memory to read it with
    std::optional<Bytes> limit;
    Bytes used;
  };
  // One bound: that of a group, or the machine's memory.
  struct Bound {
    Bytes limit;
    Bytes used;          // what cannot be reclaimed
    bool is_new = true;  // false: could not be read just now
  };
  void find_groups() const;
  void find_groups(const std::string& hierarchy, const std::string& path, host_memory::Version version) const;
  void read_limit(Group& group) const;
  bool read_use(Group& group) const;
  void note(const std::string& path, int error) const;
  template <class Wanted>
  std::optional<Bytes> least_limit(Wanted wanted) const;
  template <class Visit>
  void for_each_group(Visit visit) const;
  template <class Visit>
  void for_each_bound(Visit visit) const;

  const std::string root_;
  const Tell tell_;
  mutable std::mutex mutex_;  // guards what follows
  mutable bool found_ = false;
  mutable bool told_ = false;
  mutable std::vector<Group> groups_;
  mutable Bound machine_;
};

}  // namespace sharedgpu
