// SPDX-License-Identifier: Apache-2.0
// Computes the host memory that a process may still allocate for swap, the most host memory that evicted
// memory may occupy, and the host memory that the process has. The interposer computes the first two, too,
// from the same files and with the same margins (interposer/memory/host_budget.h). Any thread; no exceptions.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "arbiter/daemon/system.h"
#include "protocol/host_memory.h"
#include "protocol/units.h"

namespace sharedgpu {

// The contents of the files that limit a process's host memory.
struct HostTexts {
  struct Group {
    std::vector<std::string> limits;
    std::string usage, stat;  // empty if the group has no limit, or in host_most()
    bool of_job = false;      // the group contains all steps of the job
  };
  host_memory::Version version{};
  std::vector<Group> groups;  // the process's memory cgroup and the cgroups above it
  std::string meminfo;
  std::string overcommit;  // /proc/sys/vm/overcommit_memory
};

// The memory that the tightest limit leaves; nullopt if unknown. `uncharged`: memory that counts against the
// limits of the groups, although the Linux kernel charges no group for it. Pure.
std::optional<Bytes> room_in(const HostTexts& texts, Bytes uncharged = {});

// The host memory that a process may allocate at present. Nullopt if unknown: a file cannot be read, for
// example for lack of descriptors, or the process's cgroup is not visible.
std::optional<Bytes> host_room(const System& system, pid_t pid, Bytes uncharged = {});

// The maximum of evicted memory that all processes under the same limits can hold together. The interposer
// computes and reports the same values. Zero: no limit.
struct HostMost {
  Bytes of_step;  // MemoryUse::host_limit
  Bytes of_job;   // Usage::job_host_limit
  bool operator==(const HostMost&) const = default;
};
HostMost host_most_in(const HostTexts& texts);  // pure
// Nullopt if unknown.
std::optional<HostMost> host_most(const System& system, pid_t pid);

// The memory that the Linux kernel charges to the memory cgroup of a process, and the memory that the process
// itself has. If a process was moved to another group, its earlier memory stays charged to the former group.
struct HostCharge {
  std::string group;  // folder of the group
  Bytes of_group;     // including page cache
  Bytes of_process;   // host memory of the process, in RAM or in the system's swap
};
std::optional<HostCharge> host_charge(const System& system, pid_t pid);

}  // namespace sharedgpu
