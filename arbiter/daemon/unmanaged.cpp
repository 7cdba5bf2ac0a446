// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/unmanaged.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <sstream>
#include <utility>

#include "arbiter/daemon/log.h"
#include "arbiter/daemon/peers.h"
#include "arbiter/daemon/processes.h"
#include "config/quantities.h"

namespace sharedgpu {
namespace {

// Processes with less memory than both this amount and this part of the GPU are listed, but neither logged
// nor ended.
constexpr Bytes kTrifle = mebibytes(64);
constexpr std::uint64_t kTriflePart = 64;
// No process of a tenant is listed for hidden memory if all processes of the tenant together hide at most
// this part of the GPU, plus usual_context() for each process with hidden memory but the first.
constexpr std::uint64_t kOverheadPart = 8;
// Memory counts as hidden only beyond the sum of the allowed memory, a sixteenth of the allowed memory, and
// this part of the GPU.
constexpr std::uint64_t kTolerancePart = 1024;
// The contexts of a process are accepted up to this size or this part of the GPU, whichever is less.
constexpr Bytes kContexts = mebibytes(512);
constexpr std::uint64_t kContextPart = 64;
// Time for the sessions of a process to connect, for example after a restart of the arbiter.
constexpr std::chrono::seconds kNotice{5};
constexpr std::uint64_t kForgetAfter = 10;  // number of surveys without the process
constexpr std::chrono::seconds kToEnd{30};  // pause from SIGTERM to SIGKILL
// The time from a process's first memory on a GPU until its session must have sent a report. The interposer
// reports a context only when the driver has created it, which takes long if many processes start at once.
constexpr std::chrono::minutes kToTell{1};
constexpr std::chrono::minutes kToTellStopped{10};  // replaces kToTell while the process is stopped
constexpr uid_t kFirstUser = 1000;                  // smaller uids are those of root and service users

// The maximum size at which the contexts of a process are accepted.
Bytes usual_context(Bytes total) { return std::min(kContexts, Bytes{total.count / kContextPart}); }

// Returns the number after `name` in the text of a /proc/PID/status; nullopt if the name is missing.
std::optional<std::uint32_t> number_in(const std::string& status, const std::string& name) {
  const std::size_t at = status.find("\n" + name + ":");
  if (at == std::string::npos) return std::nullopt;
  std::istringstream text(status.substr(at + name.size() + 2));
  std::uint32_t number = 0;
  return text >> number ? std::optional(number) : std::nullopt;
}

}  // namespace

// Does nothing while sessions of the previous arbiter may still reconnect, because memory cannot be
// attributed to sessions in that time.
void Unmanaged::take(const std::vector<SurveyedGpu>& gpus) {
  if (its_.core.core().in_grace()) return;
  processes_.clear();
  ++surveys_;
  const Snapshot state = its_.core.core().snapshot();
  for (const Snapshot::Gpu& gpu : state.gpus) {
    const auto found = std::find_if(gpus.begin(), gpus.end(),
                                    [&](const SurveyedGpu& each) { return each.uuid == gpu.uuid; });
    if (found != gpus.end())
      its_.core.handle(Surveyed{.gpu = gpu.uuid, .found = judge(*found, gpu, state)});
    else if (gpu.surveyed)
      its_.core.handle(Surveyed{.gpu = gpu.uuid, .found = std::nullopt});
  }
  std::set<pid_t> in_the_way;
  for (const UnmanagedProcess& process : processes_)
    if (!state.find(process.gpu)->sessions.empty()) in_the_way.insert(process.pid);
  for (const UnmanagedProcess& process : processes_) {
    Known& known = known_[process.pid];
    // a process that was not listed after the previous survey may have had a session until this survey
    if (!process.has_session && known.last + 1 < surveys_) known.since = its_.system.now();
    known.last = surveys_;
    const Snapshot::Gpu* gpu = state.find(process.gpu);
    if (in_the_way.count(process.pid) == 0)
      // the process is left alone, because no session uses a GPU on which it has memory
      known.since = its_.system.now();
    else if (!gpu->sessions.empty())
      act(process, *gpu, state);
  }
  std::erase_if(known_, [&](const auto& entry) { return entry.second.last + kForgetAfter < surveys_; });
  std::erase_if(sights_, [&](const auto& entry) { return entry.second.are_old(surveys_); });
}

std::map<pid_t, Unmanaged::Sessions> Unmanaged::sessions_on(const Snapshot::Gpu& gpu,
                                                            const Snapshot& state) const {
  std::map<pid_t, Sessions> all;
  for (const SessionId id : gpu.sessions) {
    const auto* entry = its_.sessions.find(id);
    const Snapshot::Session* session = state.find(id);
    if (entry == nullptr || session == nullptr) continue;
    const Peer& peer = entry->client->peer();
    Sessions& its = all[peer.pid];
    its.process = peer.process();
    its.tenant = entry->client->tenant();
    its.allowed[id] = session->allowed;
  }
  return all;
}

// Sessions are judged only if the survey shows the process of at least one session. Such a process proves
// that NVML reports pids of the daemon's PID namespace. Under MPS, NVML may attribute all memory to the MPS
// server.
GpuSurvey Unmanaged::judge(const SurveyedGpu& found, const Snapshot::Gpu& gpu, const Snapshot& state) {
  const std::map<pid_t, Sessions> sessions = sessions_on(gpu, state);
  std::map<pid_t, std::optional<Bytes>> shown;
  GpuSurvey survey;
  bool mps = false;
  for (const SurveyedProcess& process : found.processes) {
    if (sessions.count(process.pid) > 0) {
      shown[process.pid] = process.memory;
      continue;
    }
    const Known* known = look_up(process.pid);
    if (known == nullptr || known->facts.is_own) continue;
    mps = mps || known->facts.is_mps;
    if (known->facts.is_mps || !process.memory) continue;
    survey.unmanaged += *process.memory;
    const ProcessName name{.pid = static_cast<std::uint32_t>(process.pid), .started = known->facts.started};
    // memory of a process without a session also counts as excess, in case the process gets a session
    sights_[{gpu.uuid, name}].add(surveys_, *process.memory);
    add(gpu, process.pid, *known, *process.memory);
  }
  std::map<TenantId, std::vector<Hidden>> hidden;
  for (const auto& [pid, its] : sessions) {
    if (shown.empty() && !mps) break;
    const auto seen = shown.find(pid);
    const std::optional<Bytes> memory = mps ? std::nullopt : seen == shown.end() ? Bytes{} : seen->second;
    for (const auto& [id, allowed] : its.allowed)
      survey.sessions[id] = memory ? std::optional(Bytes{memory->count / its.allowed.size()}) : std::nullopt;
    if (!memory) continue;
    const Bytes beyond = judge(survey, gpu, its, *memory);
    if (beyond != Bytes{}) hidden[its.tenant].push_back({.sessions = &its, .memory = beyond});
  }
  for (const auto& [tenant, processes] : hidden) list_hidden(survey, gpu, processes);
  const DeviceMemory bounds = its_.administration.device_memory_of(gpu.uuid);
  survey.limit = bounds.limit.of(gpu.total);
  survey.reserve = bounds.reserve.of(gpu.total);
  return survey;
}

// Returns the memory that the process hides. The part of contexts beyond the usual size counts as hidden,
// since it was not granted.
Bytes Unmanaged::judge(GpuSurvey& survey, const Snapshot::Gpu& gpu, const Sessions& sessions, Bytes memory) {
  Bytes context_left = usual_context(gpu.total);
  Bytes allowed;
  for (const auto& [id, its] : sessions.allowed) {
    const Bytes context = std::min(its.context, context_left);
    context_left = minus(context_left, context);
    allowed += its.memory + context;
    survey.contexts[id] = context;
  }
  for (const auto& [id, its] : sessions.allowed) survey.contexts[id] += context_left;
  const Bytes tolerance = Bytes{allowed.count / 16} + Bytes{gpu.total.count / kTolerancePart};
  const Bytes beyond = minus(memory, allowed + tolerance);
  if (beyond == Bytes{}) return {};
  const Bytes hidden = sights_[{gpu.uuid, sessions.process}].add(surveys_, beyond);
  survey.hidden += hidden;
  return hidden;
}

// Adds up the hidden memory of all processes of the tenant, so that a tenant with many processes cannot hide
// more.
void Unmanaged::list_hidden(GpuSurvey& survey, const Snapshot::Gpu& gpu,
                            const std::vector<Hidden>& of_tenant) {
  Bytes sum;
  for (const Hidden& hidden : of_tenant) sum += hidden.memory;
  const Bytes overhead =
      Bytes{gpu.total.count / kOverheadPart} + Bytes{usual_context(gpu.total).count * (of_tenant.size() - 1)};
  if (sum <= overhead) return;
  for (const Hidden& hidden : of_tenant) {
    survey.unreported[hidden.sessions->allowed.begin()->first] = hidden.memory;
    const auto pid = static_cast<pid_t>(hidden.sessions->process.pid);
    if (const Known* known = look_up(pid)) add(gpu, pid, *known, hidden.memory, hidden.sessions->tenant);
  }
}

void Unmanaged::add(const Snapshot::Gpu& gpu, pid_t pid, const Known& known, Bytes memory, TenantId tenant) {
  processes_.push_back({.gpu = gpu.uuid,
                        .pid = pid,
                        .uid = known.facts.uid,
                        .account = known.facts.account,
                        .job = known.facts.job,
                        .memory = memory,
                        .has_session = tenant != TenantId{},
                        .tenant = tenant});
}

// Returns null if the process does not exist, or the daemon cannot see it.
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
  const bool trifling = process.memory < std::min(kTrifle, Bytes{gpu.total.count / kTriflePart});
  if (measure == Measure::ignore || trifling || its_.system.now() - known.since < kNotice) return;
  if (!std::exchange(known.warned, true))
    its_.complaints.add(
        known.facts.account, Cause::unmanaged,
        describe(process, gpu) +
            (process.has_session ? " beyond what its session reports" : " without being a tenant") +
            "; the arbiter does not hand out that memory");
  if (measure == Measure::cancel) end(process, known, state);
}

// Ends the process, unless it belongs to root or a service user, or may run with the interposer. A process
// that an earlier arbiter served may reconnect, and a stopped process cannot report, so these processes get
// more time.
void Unmanaged::end(const UnmanagedProcess& process, Known& known, const Snapshot& state) {
  const ProcessName name{.pid = static_cast<std::uint32_t>(process.pid), .started = known.facts.started};
  if (process.uid < kFirstUser || known.killed || claims_memory(name, state)) return;
  const std::set<SessionId> sessions = its_.sessions.of(name);
  const bool is_expected = its_.past.expects(name);
  const bool may_tell = is_expected || !sessions.empty();
  const Stopped stopped = may_tell ? stopped_state(its_.system, process.pid) : Stopped::no;
  if (stopped != Stopped::no) known.stopped = its_.system.now();
  const bool is_suspended = (stopped == Stopped::by_root && known.facts.job) || is_announced(sessions, state);
  if (stopped != Stopped::no && (is_suspended || (is_expected && stopped == Stopped::by_root))) return;
  const Nanoseconds runs_since = std::max(known.since, known.stopped);
  const bool has_time = stopped == Stopped::no ? its_.system.now() - runs_since < kToTell
                                               : its_.system.now() - known.since < kToTellStopped;
  if (may_tell && has_time) return;
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

// Returns true if a session of the process proves that the process runs with the interposer. A session proves
// nothing if it has reported no memory, or if its GPU is known only from reports of sessions. A reconnected
// session is a proof even without a report, since it may not have had the time to report.
bool Unmanaged::claims_memory(const ProcessName& process, const Snapshot& state) const {
  const std::set<SessionId> sessions = its_.sessions.of(process);
  return std::any_of(sessions.begin(), sessions.end(), [&](SessionId id) {
    const Snapshot::Session* session = state.find(id);
    if (session == nullptr || !session->gpu) return false;
    const Snapshot::Gpu* gpu = state.find(*session->gpu);
    return gpu != nullptr && !gpu->learned && !session->claims_nothing;
  });
}

// Returns true if Slurm has announced the suspension of a tenant of these sessions.
bool Unmanaged::is_announced(const std::set<SessionId>& sessions, const Snapshot& state) {
  return std::any_of(sessions.begin(), sessions.end(), [&](SessionId id) {
    const Snapshot::Session* session = state.find(id);
    const Snapshot::Tenant* tenant = session == nullptr ? nullptr : state.find(session->tenant);
    return tenant != nullptr && tenant->suspended;
  });
}

std::string Unmanaged::describe(const UnmanagedProcess& process, const Snapshot::Gpu& gpu) const {
  return (process.job ? "job " + std::to_string(*process.job) + ", " : std::string()) + "pid " +
         std::to_string(process.pid) + ", uid " + std::to_string(process.uid) + ": has " +
         format_size(process.memory) + " of GPU " + std::to_string(gpu.number);
}

}  // namespace sharedgpu
