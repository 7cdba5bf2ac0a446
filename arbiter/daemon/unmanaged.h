// SPDX-License-Identifier: Apache-2.0
// Passes the findings of surveys to the core: the memory of each session, and the memory that belongs to no
// session. Lists the processes that have memory on a GPU without a session on this GPU, or much more memory
// than their sessions account for. Treats these processes as Unmanaged= says.
//
// The hidden memory of a process is its memory on a GPU beyond the memory that all its sessions on that GPU
// may have. Hidden memory counts only up to the amount that the last survey and another recent survey show.
// For each survey, the sessions' memory counts as the most that they may have had since the previous survey.
// So memory that was being freed or restored never counts as hidden. The driver takes memory for kernels,
// graphs and printf buffers that no program can report. So a tenant may hide an eighth of the GPU, plus one
// context of usual size for each process with hidden memory but the first. If a tenant hides more, these
// processes are listed, and all of the hidden memory counts as memory of the tenant (GpuSurvey::unreported).
//
// The daemon's children and the MPS server are exempt. Event-loop thread only.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "arbiter/daemon/administration.h"
#include "arbiter/daemon/complaints.h"
#include "arbiter/daemon/core_runner.h"
#include "arbiter/daemon/session_table.h"
#include "arbiter/daemon/sights.h"
#include "arbiter/daemon/survey.h"
#include "arbiter/daemon/system.h"
#include "arbiter/ledger/history.h"
#include "arbiter/ledger/tenants.h"

namespace sharedgpu {

struct UnmanagedProcess {
  GpuUuid gpu;
  pid_t pid = 0;
  uid_t uid = 0;
  uid_t account = 0;                 // see account_of()
  std::optional<std::uint32_t> job;  // read from the cgroup
  // memory of the process on this GPU beyond the memory that its sessions may have
  Bytes memory;
  bool has_session = false;  // the process has a session on this GPU
  TenantId tenant = {};      // the tenant of this session
};

class Unmanaged {
 public:
  struct Parts {
    const System& system;
    const SessionTable& sessions;
    const History& past;
    CoreRunner& core;
    const Administration& administration;
    Complaints& complaints;
  };
  explicit Unmanaged(const Parts& parts) : its_(parts) {}

  // Call with each answer of the Survey (survey.h), including empty answers.
  void take(const std::vector<SurveyedGpu>& gpus);
  // The listed processes as of the last answer.
  const std::vector<UnmanagedProcess>& processes() const { return processes_; }

 private:
  struct Facts {
    std::uint64_t started = 0;
    uid_t uid = 0;
    uid_t account = 0;  // see account_of()
    std::optional<std::uint32_t> job;
    bool is_own = false;  // the daemon or one of its children
    bool is_mps = false;
  };
  // A process that surveys show. `since`: when it began to have unmanaged memory on a GPU with sessions.
  // `last`: the last survey after which it was listed.
  struct Known {
    Facts facts;
    Nanoseconds since{};
    std::uint64_t last = 0;
    Nanoseconds stopped{};  // when the process was last seen stopped
    bool warned = false;
    std::optional<Nanoseconds> ended;  // time of the last signal
    bool killed = false;
  };

  // The sessions of a process on a GPU, and the memory that they may have there.
  struct Sessions {
    ProcessName process;
    TenantId tenant;
    std::map<SessionId, Allowed> allowed;
  };
  // Hidden memory of a process.
  struct Hidden {
    const Sessions* sessions = nullptr;
    Bytes memory;
  };
  using OnGpu = std::pair<GpuUuid, ProcessName>;

  GpuSurvey judge(const SurveyedGpu& found, const Snapshot::Gpu& gpu, const Snapshot& state);
  std::map<pid_t, Sessions> sessions_on(const Snapshot::Gpu& gpu, const Snapshot& state) const;
  Bytes judge(GpuSurvey& survey, const Snapshot::Gpu& gpu, const Sessions& sessions, Bytes memory);
  void list_hidden(GpuSurvey& survey, const Snapshot::Gpu& gpu, const std::vector<Hidden>& of_tenant);
  void add(const Snapshot::Gpu& gpu, pid_t pid, const Known& known, Bytes memory, TenantId tenant = {});
  Known* look_up(pid_t pid);
  Facts facts_of(pid_t pid, std::uint64_t started) const;
  void act(const UnmanagedProcess& process, const Snapshot::Gpu& gpu, const Snapshot& state);
  void end(const UnmanagedProcess& process, Known& known, const Snapshot& state);
  bool claims_memory(const ProcessName& process, const Snapshot& state) const;
  static bool is_announced(const std::set<SessionId>& sessions, const Snapshot& state);
  std::string describe(const UnmanagedProcess& process, const Snapshot::Gpu& gpu) const;

  const Parts its_;
  std::map<pid_t, Known> known_;
  std::map<OnGpu, Sights> sights_;  // memory of each process beyond the memory that its sessions may have
  std::uint64_t surveys_ = 0;
  std::vector<UnmanagedProcess> processes_;
};

}  // namespace sharedgpu
