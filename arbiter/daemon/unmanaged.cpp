// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/unmanaged.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <sstream>
#include <utility>

#include "arbiter/daemon/log.h"
#include "arbiter/daemon/peers.h"
#include "arbiter/daemon/processes.h"
#include "config/quantities.h"

namespace sharedgpu {
namespace {

// Processes with less, or less than this part of the GPU, are not worth a word.
constexpr Bytes kTrifle = mebibytes(64);
constexpr std::uint64_t kTriflePart = 64;
// The same of a session's process: it cannot tell all that the driver takes for its kernels.
constexpr std::uint64_t kOverheadPart = 8;
// The sessions of a process may still be on their way, as after a restart of the arbiter.
constexpr std::chrono::seconds kNotice{5};
constexpr std::chrono::seconds kToEnd{30};  // from SIGTERM to SIGKILL
// From a process's first memory on a GPU to its session's first word about it: the library tells of a context
// when the driver has made it, which takes long where many begin at once.
constexpr std::chrono::minutes kToTell{1};
constexpr uid_t kFirstUser = 1000;          // below are root and the users of services

// The number after that name in the text of a /proc/PID/status; none: there is none.
std::optional<std::uint32_t> number_in(const std::string& status, const std::string& name) {
  const std::size_t at = status.find("\n" + name + ":");
  if (at == std::string::npos) return std::nullopt;
  std::istringstream text(status.substr(at + name.size() + 2));
  std::uint32_t number = 0;
  return text >> number ? std::optional(number) : std::nullopt;
}

}  // namespace

// While sessions of the arbiter before may still come back, nobody can tell whose memory is whose.
void Unmanaged::take(const std::vector<SurveyedGpu>& gpus) {
  if (its_.core.core().in_grace()) return;
  processes_.clear();
  const Snapshot before = its_.core.core().snapshot();
  for (const Snapshot::Gpu& gpu : before.gpus) {
    const auto found = std::find_if(gpus.begin(), gpus.end(),
                                    [&](const SurveyedGpu& each) { return each.uuid == gpu.uuid; });
    if (found != gpus.end())
      its_.core.handle(Surveyed{.gpu = gpu.uuid, .found = judge(*found, gpu)});
    else if (gpu.surveyed)
      its_.core.handle(Surveyed{.gpu = gpu.uuid, .found = std::nullopt});
  }
  const Snapshot state = its_.core.core().snapshot();
  for (const Snapshot::Gpu& gpu : state.gpus) add_hidden(gpu, state);
  std::set<pid_t> seen;
  for (const UnmanagedProcess& process : processes_) {
    seen.insert(process.pid);
    const Snapshot::Gpu* gpu = state.find(process.gpu);
    if (gpu != nullptr && !gpu->sessions.empty()) act(process, *gpu, state);
  }
  std::erase_if(known_, [&](const auto& entry) { return seen.count(entry.first) == 0; });
}

// Sessions are judged only where the survey shows the process of one: so it is sure that it names processes
// as the daemon does. Under MPS all memory may be the server's.
GpuSurvey Unmanaged::judge(const SurveyedGpu& found, const Snapshot::Gpu& gpu) {
  std::map<pid_t, std::vector<SessionId>> sessions;
  for (const SessionId id : gpu.sessions)
    if (const auto* entry = its_.sessions.find(id)) sessions[entry->client->peer().pid].push_back(id);
  std::map<pid_t, std::optional<Bytes>> shown;
  GpuSurvey survey;
  bool can_judge = false;
  bool mps = false;
  for (const SurveyedProcess& process : found.processes) {
    if (sessions.count(process.pid) > 0) {
      shown[process.pid] = process.memory;
      can_judge = true;
      continue;
    }
    const Known* known = look_up(process.pid);
    if (known == nullptr || known->facts.is_own) continue;
    mps = mps || known->facts.is_mps;
    if (known->facts.is_mps || !process.memory) continue;
    survey.unmanaged += *process.memory;
    add(gpu, process.pid, *known, *process.memory, false);
  }
  for (const auto& [pid, ids] : sessions) {
    const auto its = shown.find(pid);
    std::optional<Bytes> memory = its == shown.end() ? Bytes{} : its->second;
    if (mps) memory.reset();
    if (memory) memory->count /= ids.size();
    if (!can_judge && !mps) continue;
    for (const SessionId id : ids) survey.sessions[id] = memory;
  }
  const Settings& settings = its_.administration.settings();
  survey.limit = settings.device_memory_limit.of(gpu.total);
  survey.reserve = settings.memory_reserve.of(gpu.total);
  return survey;
}

void Unmanaged::add_hidden(const Snapshot::Gpu& gpu, const Snapshot& state) {
  if (gpu.hidden == Bytes{}) return;
  for (const SessionId id : gpu.sessions) {
    const Snapshot::Session* session = state.find(id);
    const auto* entry = its_.sessions.find(id);
    if (session == nullptr || entry == nullptr || session->evidence.hidden() == Bytes{}) continue;
    const pid_t pid = entry->client->peer().pid;
    if (const Known* known = look_up(pid)) add(gpu, pid, *known, session->evidence.hidden(), true);
  }
}

void Unmanaged::add(const Snapshot::Gpu& gpu, pid_t pid, const Known& known, Bytes memory, bool has_session) {
  processes_.push_back({.gpu = gpu.uuid,
                        .pid = pid,
                        .uid = known.facts.uid,
                        .job = known.facts.job,
                        .memory = memory,
                        .has_session = has_session});
}

// Null: there is no such process, or none that the daemon can see.
Unmanaged::Known* Unmanaged::look_up(pid_t pid) {
  const std::uint64_t started = start_time_of(its_.system, pid);
  if (started == 0) return nullptr;
  Known& known = known_[pid];
  if (known.facts.started != started)
    known = {.facts = facts_of(pid, started), .since = its_.system.now(), .ended = std::nullopt};
  return &known;
}

Unmanaged::Facts Unmanaged::facts_of(pid_t pid, std::uint64_t started) const {
  const std::string process = "/proc/" + std::to_string(pid);
  std::string status, cgroup, name;
  static_cast<void>(its_.system.read_file(process + "/status", status));
  static_cast<void>(its_.system.read_file(process + "/cgroup", cgroup));
  static_cast<void>(its_.system.read_file(process + "/comm", name));
  Facts facts{.started = started, .job = std::nullopt};
  facts.uid = number_in(status, "Uid").value_or(0);
  facts.account = account_of(its_.system, pid, facts.uid);
  std::optional<StepName> step;
  static_cast<void>(step_of_process(its_.system, cgroup, step));
  if (step) facts.job = step->job;
  const auto parent = number_in(status, "PPid");
  facts.is_own = pid == getpid() || parent == static_cast<std::uint32_t>(getpid());
  facts.is_mps = name.starts_with("nvidia-cuda-mps") && (facts.uid == 0 || facts.uid == geteuid());
  return facts;
}

void Unmanaged::act(const UnmanagedProcess& process, const Snapshot::Gpu& gpu, const Snapshot& state) {
  Known& known = known_[process.pid];
  const Measure measure = its_.administration.settings().unmanaged;
  const bool trifling =
      process.memory < (process.has_session ? Bytes{gpu.total.count / kOverheadPart}
                                            : std::min(kTrifle, Bytes{gpu.total.count / kTriflePart}));
  if (measure == Measure::ignore || trifling || its_.system.now() - known.since < kNotice) return;
  if (!std::exchange(known.warned, true))
    its_.complaints.add(
        known.facts.account, Cause::unmanaged,
        describe(process, gpu) +
            (process.has_session ? " beside what its session says" : " without being a tenant") +
            "; that is not handed out");
  if (measure == Measure::cancel) end(process, known, state);
}

// Neither root's processes are ended nor those of services, nor any that may run with the library; one that
// is stopped may not have had the time for its session.
void Unmanaged::end(const UnmanagedProcess& process, Known& known, const Snapshot& state) {
  if (process.uid < kFirstUser || known.killed || claims_memory(process.pid, state)) return;
  const ProcessName name{.pid = static_cast<std::uint32_t>(process.pid), .started = known.facts.started};
  const bool may_tell = !its_.sessions.of(name).empty();
  if (may_tell && its_.system.now() - known.since < kToTell) return;
  if (is_stopped(its_.system, process.pid)) return;
  const bool again = known.ended.has_value();
  if (again && its_.system.now() - *known.ended < kToEnd) return;
  const UniqueFd pidfd = open_process(its_.system, name);
  if (!pidfd || its_.system.send_signal(pidfd.get(), again ? SIGKILL : SIGTERM) != 0) return;
  its_.complaints.add(
      known.facts.account, Cause::unmanaged,
      "pid " + std::to_string(process.pid) + ", uid " + std::to_string(process.uid) +
          (again ? ": killed, since it did not end" : ": asked to end, since Unmanaged=cancel"));
  known.killed = again;
  known.ended = its_.system.now();
}

// A session that claims nothing at all, or is for a GPU that the arbiter has not found itself, shows no
// library. One that came back may be yet to tell.
bool Unmanaged::claims_memory(pid_t pid, const Snapshot& state) const {
  const auto& sessions = its_.sessions.all();
  return std::any_of(sessions.begin(), sessions.end(), [&](const auto& each) {
    if (each.second.client->peer().pid != pid) return false;
    const Snapshot::Session* session = state.find(each.first);
    if (session == nullptr || !session->gpu) return false;
    const Snapshot::Gpu* gpu = state.find(*session->gpu);
    return gpu != nullptr && !gpu->learned && !session->claims_nothing;
  });
}

std::string Unmanaged::describe(const UnmanagedProcess& process, const Snapshot::Gpu& gpu) const {
  return (process.job ? "job " + std::to_string(*process.job) + ", " : std::string()) + "pid " +
         std::to_string(process.pid) + ", uid " + std::to_string(process.uid) + ": has " +
         format_size(process.memory) + " of GPU " + std::to_string(gpu.number);
}

}  // namespace sharedgpu
