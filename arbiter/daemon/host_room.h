// SPDX-License-Identifier: Apache-2.0
// The host memory that a process may take for swap, and the memory that it has, computed from the same files
// and with the same margins as the library does (interposer/memory/host_budget.h). Any thread; no exceptions.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "arbiter/daemon/system.h"
#include "protocol/host_memory.h"
#include "protocol/units.h"

namespace sharedgpu {

// The texts of the files that bound a process's host memory.
struct HostTexts {
  struct Group {
    std::vector<std::string> limits;
    std::string usage, stat;  // if the group has a limit
    bool of_job = false;      // contains all steps of the job
  };
  host_memory::Version version{};
  std::vector<Group> groups;  // the process's memory cgroup and those above it
  std::string meminfo;
  std::string overcommit;  // /proc/sys/vm/overcommit_memory
};

// The room left by the tightest limit; none if unknown. Pure.
std::optional<Bytes> room_in(const HostTexts& texts);

// The current room of a process; none if unknown, as when a file cannot be read for lack of descriptors, or
// when the process's cgroup is not visible.
std::optional<Bytes> host_room(const System& system, pid_t pid);

// The most evicted memory that a process and all others under the same limits can ever hold, as the library
// reports it. Zero: no limit.
struct HostMost {
  Bytes of_step;  // MemoryUse::host_limit
  Bytes of_job;   // Usage::job_host_limit
  bool operator==(const HostMost&) const = default;
};
HostMost host_most_in(const HostTexts& texts);  // pure
// None if unknown.
std::optional<HostMost> host_most(const System& system, pid_t pid);

// The memory that the kernel charges to the memory cgroup of a process, and the memory that the process
// itself has. None if unknown. A process that was moved to another group has memory that is charged to the
// former one.
struct HostCharge {
  std::string group;  // its folder
  Bytes of_group;     // including page cache
  Bytes of_process;   // host memory of the process, in RAM or in the system's swap
};
std::optional<HostCharge> host_charge(const System& system, pid_t pid);

}  // namespace sharedgpu
