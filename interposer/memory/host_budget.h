// SPDX-License-Identifier: Apache-2.0
// How much host memory this job may still take for swap, so that eviction is refused before the kernel's
// out-of-memory killer would be asked.
#pragma once

#include <optional>
#include <string>
#include <vector>

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
};

// Reads the memory cgroups (v1 or v2) of this process, all their ancestors, and /proc/meminfo, anew each
// time: a job's limits may be changed while it runs. The process's place in the tree is read once.
class CgroupBudget final : public HostBudget {
 public:
  // `root` stands before /proc and /sys, for tests.
  explicit CgroupBudget(const std::string& root = {});

  Bytes room() const override;
  bool tight(Bytes more) const override;
  bool used_up() const override;
  std::optional<Bytes> limit() const override;

 private:
  // A folder of a memory cgroup, and how its files are called.
  struct Group {
    std::string folder;
    bool v2 = false;
  };
  // One bound: that of a group, or the machine's memory.
  struct Bound {
    Bytes limit;
    Bytes used;  // what cannot be reclaimed
  };
  void find_groups(const std::string& hierarchy, const std::string& path, bool v2);
  static std::optional<Bytes> limit_of(const Group& group);
  static Bytes used_of(const Group& group);
  template <class Visit>
  void for_each_group(Visit visit) const;
  template <class Visit>
  void for_each_bound(Visit visit) const;

  std::string meminfo_;
  std::vector<Group> groups_;
};

}  // namespace sharedgpu
