// SPDX-License-Identifier: Apache-2.0
// The host memory that a process may still take for swap, computed from the same files and with the same
// margins as the library does (interposer/memory/host_budget.h). Any thread; no exceptions.
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

}  // namespace sharedgpu
