// SPDX-License-Identifier: Apache-2.0
// Tells the core in its words the findings of surveys: the memory of each session, and that of nobody. Keeps
// the list of processes that have memory on a GPU without a session there, or hide memory from the session
// that they have, and does about them what Unmanaged= says.
//
// The daemon's own children and the server of MPS are not among them. One thread, that of the event loop.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "arbiter/daemon/administration.h"
#include "arbiter/daemon/complaints.h"
#include "arbiter/daemon/core_runner.h"
#include "arbiter/daemon/session_table.h"
#include "arbiter/daemon/survey.h"
#include "arbiter/daemon/system.h"
#include "arbiter/ledger/tenants.h"

namespace sharedgpu {

struct UnmanagedProcess {
  GpuUuid gpu;
  pid_t pid = 0;
  uid_t uid = 0;
  std::optional<std::uint32_t> job;  // by its cgroup
  Bytes memory;                      // there, beyond what its session may have
  bool has_session = false;          // there
};

class Unmanaged {
 public:
  struct Parts {
    const System& system;
    const SessionTable& sessions;
    CoreRunner& core;
    const Administration& administration;
    Complaints& complaints;
  };
  explicit Unmanaged(const Parts& parts) : its_(parts) {}

  // An answer of the Survey; empty: it has none.
  void take(const std::vector<SurveyedGpu>& gpus);
  // As of the last one.
  const std::vector<UnmanagedProcess>& processes() const { return processes_; }

 private:
  struct Facts {
    std::uint64_t started = 0;
    uid_t uid = 0;
    uid_t account = 0;  // see account_of()
    std::optional<std::uint32_t> job;
    bool is_own = false;  // the daemon's, or one of its children
    bool is_mps = false;
  };
  // A process with unmanaged memory, from when that was seen first.
  struct Known {
    Facts facts;
    Nanoseconds since{};
    bool warned = false;
    std::optional<Nanoseconds> ended;  // when it was asked to end
    bool killed = false;
  };

  GpuSurvey judge(const SurveyedGpu& found, const Snapshot::Gpu& gpu);
  void add_hidden(const Snapshot::Gpu& gpu, const Snapshot& state);
  void add(const Snapshot::Gpu& gpu, pid_t pid, const Known& known, Bytes memory, bool has_session);
  Known* look_up(pid_t pid);
  Facts facts_of(pid_t pid, std::uint64_t started) const;
  void act(const UnmanagedProcess& process, const Snapshot::Gpu& gpu, const Snapshot& state);
  void end(const UnmanagedProcess& process, Known& known, const Snapshot& state);
  bool claims_memory(pid_t pid, const Snapshot& state) const;
  std::string describe(const UnmanagedProcess& process, const Snapshot::Gpu& gpu) const;

  const Parts its_;
  std::map<pid_t, Known> known_;
  std::vector<UnmanagedProcess> processes_;
};

}  // namespace sharedgpu
