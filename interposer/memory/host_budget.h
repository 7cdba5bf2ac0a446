// SPDX-License-Identifier: Apache-2.0
// The host memory that this job may still allocate for swap. This budget makes an eviction fail before the
// Linux kernel's out-of-memory killer acts.
#pragma once

#include <atomic>
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
  // Called when this process takes or gives back host memory for which no cgroup is charged. The other
  // functions count this memory as if it were charged.
  virtual void take_uncharged(Bytes /*size*/) {}
  virtual void give_uncharged(Bytes /*size*/) {}
  // The bytes that may be allocated for swap now. A safety margin has already been subtracted.
  virtual Bytes room() const = 0;
  // Like room(), but reads files at most ten times a second. The result may lack changes of the last 100 ms
  // before `now`: memory charged to the job's cgroups, and uncharged memory that was given back.
  virtual Bytes recent_room(Nanoseconds /*now*/) const { return room(); }
  // Returns true if fewer than three safety margins are left under a limit, or of the machine's memory, once
  // `more` further bytes have been allocated for swap: the job's own next allocations may then fail. The host
  // pool should then release its unused memory.
  virtual bool tight(Bytes more) const = 0;
  // Returns true if the job itself uses more than a quarter of the safety margin. It then needs the memory
  // that swap occupies.
  virtual bool used_up() const = 0;
  // The bytes in use in the cgroup with the lowest limit, without the bytes that the Linux kernel reclaims on
  // demand; zero if no cgroup has a limit.
  virtual Bytes used() const = 0;
  // The lowest limit of the job's cgroups, less the safety margin; nullopt if no cgroup has a limit, or none
  // could be read yet.
  virtual std::optional<Bytes> limit() const = 0;
  // Like limit(), but only of the cgroups that contain all steps of the job on this node; nullopt also if the
  // cgroups do not show which limit is the job's.
  virtual std::optional<Bytes> job_limit() const = 0;
};

// Reads the memory cgroups (v1 or v2) of this process, all their ancestors, and /proc/meminfo on each call,
// since a job's limits may change while it runs. The process's path in the cgroup tree is read only once.
//
// A file may be unreadable for some time, for example for lack of descriptors. If the limit of a cgroup
// cannot be read, the value that was read last applies. While the memory in use cannot be read, or a limit
// was never read because of such a temporary error, room() returns zero.
class CgroupBudget final : public HostBudget {
 public:
  // Called at most once: for the process's list of cgroups, or for a limit, if it cannot be read and was
  // never read before. `error` is an errno value.
  using Tell = void (*)(const char* path, int error);

  // `root` is the prefix of /proc and /sys, for tests.
  explicit CgroupBudget(std::string root = {}, Tell tell = nullptr);

  void take_uncharged(Bytes size) override { uncharged_.fetch_add(size.count, std::memory_order_relaxed); }
  void give_uncharged(Bytes size) override { uncharged_.fetch_sub(size.count, std::memory_order_relaxed); }
  Bytes room() const override;
  Bytes recent_room(Nanoseconds now) const override;
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
    bool of_job = false;  // the group contains all steps of the job
    bool known = false;
    bool unread = false;  // the limit is unknown: no descriptor or memory was left for reading the file
    std::optional<Bytes> limit;
    Bytes used;
  };
  // A limit and the memory in use under this limit: a group's limit, or the machine's memory.
  struct Bound {
    Bytes limit;
    Bytes used;          // without memory that the Linux kernel can reclaim
    bool is_new = true;  // false: `used` could not be read this time
  };
  Bytes read_room() const;
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

  std::atomic<std::uint64_t> uncharged_{0};
  const std::string root_;
  const Tell tell_;
  mutable std::mutex mutex_;  // guards the members below
  mutable bool found_ = false;
  mutable bool told_ = false;
  mutable std::vector<Group> groups_;
  mutable Bound machine_;
  // The room that recent_room() has read last, with the uncharged memory at that time.
  struct Known {
    Nanoseconds at{};
    Bytes room;
    Bytes uncharged;
  };
  mutable std::optional<Known> known_;
};

}  // namespace sharedgpu
