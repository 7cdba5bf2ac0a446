// SPDX-License-Identifier: Apache-2.0
// The host memory that this job may still take for swap. This budget makes an eviction fail before the
// kernel's out-of-memory killer acts.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "protocol/host_memory.h"
#include "protocol/units.h"

namespace sharedgpu {

// Thread-safe.
class HostBudget {
 public:
  virtual ~HostBudget() = default;
  // The bytes that may be taken now, less a safety margin.
  virtual Bytes room() const = 0;
  // Returns true if after taking `more` bytes less would be left than the job's own next allocations may
  // need. Idle pool memory should then be released.
  virtual bool tight(Bytes more) const = 0;
  // Returns true if the job itself has begun to use up the margin, and so needs memory that swap holds.
  virtual bool used_up() const = 0;
  // The bytes in use in the group with the least limit, less the bytes that the kernel reclaims on demand;
  // zero without a limit.
  virtual Bytes used() const = 0;
  // The most host memory that the job could ever use; nullopt if it has no limit.
  virtual std::optional<Bytes> limit() const = 0;
  // The most host memory that all steps of the job on this node together could ever use; nullopt if there is
  // no such limit or it cannot be distinguished.
  virtual std::optional<Bytes> job_limit() const = 0;
};

// Reads the memory cgroups (v1 or v2) of this process, all their ancestors, and /proc/meminfo on each call,
// since a job's limits may change while it runs. The process's place in the tree is read once.
//
// If a file cannot be read, for example for lack of descriptors, its last known limit applies. Until the file
// can be read again nothing may be taken, since the remaining memory is unknown.
class CgroupBudget final : public HostBudget {
 public:
  // Called once, for a file that could not be read and whose value was not known before. `error` is an errno
  // value.
  using Tell = void (*)(const char* path, int error);

  // `root` is the prefix of /proc and /sys, for tests.
  explicit CgroupBudget(std::string root = {}, Tell tell = nullptr);

  Bytes room() const override;
  bool tight(Bytes more) const override;
  bool used_up() const override;
  Bytes used() const override;
  std::optional<Bytes> limit() const override;
  std::optional<Bytes> job_limit() const override;

 private:
  // The directory of a memory cgroup, the version that determines its file names, and the last values read.
  struct Group {
    std::string folder;
    host_memory::Version version{};
    bool of_job = false;  // contains all steps of the job
    bool known = false;
    bool unread = false;  // unknown, since there was no descriptor or memory for reading the file
    std::optional<Bytes> limit;
    Bytes used;
  };
  // One bound: a group's limit, or the machine's memory.
  struct Bound {
    Bytes limit;
    Bytes used;          // memory that is in use and cannot be reclaimed
    bool is_new = true;  // false: could not be read this time
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
