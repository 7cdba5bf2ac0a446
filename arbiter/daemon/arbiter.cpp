// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/arbiter.h"

#include "arbiter/daemon/log.h"
#include "arbiter/daemon/processes.h"
#include "arbiter/daemon/terms.h"

namespace sharedgpu {
namespace {

// The longest time for which growth waits for the first surveys (Tuning::first_surveys). NVML usually starts
// within two seconds.
constexpr std::chrono::seconds kFirstSurveys{20};

// Returns an empty text if the file cannot be read.
std::string read_boot_id(const System& system) {
  std::string text;
  if (!system.read_file("/proc/sys/kernel/random/boot_id", text).ok()) return {};
  return text.substr(0, text.find('\n'));
}

Tuning tuning_of(const Settings& settings) {
  Tuning tuning;
  tuning.turns = rules_of(settings).turns;
  tuning.overuse.emplace();
  tuning.set(node_tuning_of(settings));
  tuning.first_surveys = kFirstSurveys;
  return tuning;
}

}  // namespace

Arbiter::Arbiter(asio::io_context& loop, Schedule& schedule, const System& system, const Settings& settings,
                 std::unique_ptr<FileCalls> files, std::unique_ptr<Mail> mail)
    : system_(system),
      complaints_(loop, system),
      journal_(loop, system, history_.figures, settings, std::move(files)),
      core_(loop, schedule, system, journal_, session_table_, history_.tenants, complaints_),
      administration_(loop, system, settings, core_, history_.tenants, complaints_),
      gpus_(loop, system, core_, administration_, complaints_,
            [this](const std::vector<GpuInfo>& gpus) { health_.found(gpus); }),
      scontrol_(loop, system),
      health_({.system = system,
               .core = core_,
               .journal = journal_,
               .tenants = history_.tenants,
               .administration = administration_,
               .complaints = complaints_,
               .gpus = gpus_,
               .scontrol = scontrol_}),
      coordination_({.loop = loop,
                     .system = system,
                     .tenants = history_.tenants,
                     .core = core_,
                     .complaints = complaints_,
                     .heard_file = settings.state_dir + "/nodes",
                     .boot = read_boot_id(system)},
                    std::move(mail)),
      groups_({.loop = loop,
               .system = system,
               .parent = settings.cgroup_parent,
               .tenants = history_.tenants,
               .figures = history_.figures,
               .journal = journal_,
               .complaints = complaints_}),
      jobs_(loop, system, history_.tenants, history_.figures, core_, administration_, journal_, complaints_,
            coordination_, groups_),
      host_claims_({.system = system,
                    .sessions = session_table_,
                    .tenants = history_.tenants,
                    .core = core_,
                    .administration = administration_,
                    .complaints = complaints_}),
      sessions_({.loop = loop,
                 .schedule = schedule,
                 .system = system,
                 .past = history_,
                 .figures = history_.figures,
                 .table = session_table_,
                 .journal = journal_,
                 .core = core_,
                 .administration = administration_,
                 .gpus = gpus_,
                 .health = health_,
                 .jobs = jobs_,
                 .host_claims = host_claims_,
                 .coordination = coordination_,
                 .groups = groups_}),
      unmanaged_({.system = system,
                  .sessions = session_table_,
                  .past = history_,
                  .core = core_,
                  .administration = administration_,
                  .complaints = complaints_}),
      device_claims_(history_.tenants, complaints_),
      meters_(journal_),
      survey_(
          loop, system, [this] { return !session_table_.all().empty() || health_.may_miss_a_loss(); },
          [this](const std::vector<SurveyedGpu>& gpus) { take_survey(gpus); }, SurveyTimes(),
          GpuWatch{
              .looked = [this](const std::vector<GpuHealth>& gpus, bool all) { health_.looked(gpus, all); },
              .saw = [this](const GpuSign& sign) { health_.saw(sign); }}),
      viewers_(system, administration_, history_.tenants, scontrol_),
      notices_({.loop = loop,
                .system = system,
                .sessions = session_table_,
                .tenants = history_.tenants,
                .core = core_,
                .administration = administration_,
                .jobs = jobs_,
                .viewers = viewers_}),
      queries_({.system = system,
                .sessions = session_table_,
                .tenants = history_.tenants,
                .figures = history_.figures,
                .core = core_,
                .administration = administration_,
                .gpus = gpus_,
                .jobs = jobs_,
                .host_claims = host_claims_,
                .unmanaged = unmanaged_,
                .device_claims = device_claims_,
                .meters = meters_,
                .health = health_,
                .coordination = coordination_,
                .viewers = viewers_}),
      reload_({.system = system,
               .administration = administration_,
               .journal = journal_,
               .coordination = coordination_}),
      messages_({.sessions = sessions_,
                 .jobs = jobs_,
                 .queries = queries_,
                 .administration = administration_,
                 .health = health_,
                 .reload = reload_,
                 .journal = journal_,
                 .complaints = complaints_}) {
  core_.on_gang_report([this](const TellGang& told) { coordination_.report(told); });
}

Status Arbiter::start(const std::vector<GpuInfo>& gpus) {
  administration_.find_administrators();
  if (Status recovered = recover(); !recovered.ok()) return recovered;
  health_.restore(history_.gpu_records);
  gpus_.start(gpus);
  groups_.restore();
  jobs_.restore(history_.keepers);
  // With Tenants=jobs, or if the ledger has jobs, begins to exchange messages with the arbiters of other
  // nodes (mail.h).
  if (administration_.settings().tenants == TenantKind::jobs) coordination_.start();
  for (const auto& [id, tenant] : history_.tenants.all())
    if (tenant.name.is_job()) coordination_.start();
  journal_.flush();
  viewers_.start();
  administration_.start_mps();
  return {};
}

// Starts the core with the state recorded in the ledger.
Status Arbiter::recover() {
  bool is_new = true;
  const auto take = [&](const Record& past) {
    is_new = false;
    history_.add(past);
  };
  if (Status opened = journal_.open(take); !opened.ok()) return opened;
  if (is_new) jobs_.begin_without_ledger();
  const BootRecord boot{.boot_id = read_boot_id(system_), .booted = system_.wall_time() - system_.now()};
  groups_.record_peaks();
  const auto starts = [this](pid_t pid) { return known_start_time_of(system_, pid); };
  for (const Record& past : history_.finish(boot, starts, system_.now())) journal_.record(past);
  sessions_.start(history_.last_session);
  for (const auto& [key, lease] : history_.recovered.leases.open())
    history_.figures.energy().grant({key.tenant, key.gpu}, system_.now());
  const Settings& settings = administration_.settings();
  core_.start(tuning_of(settings), *rules_of(settings).policy, std::move(history_.recovered));
  return {};
}

std::string Arbiter::summary() const {
  const Snapshot state = core_.core().snapshot();
  const auto count = [](std::size_t number, const std::string& what) {
    return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
  };
  return count(state.gpus.size(), "GPU") + ", " + count(state.tenants.size(), "tenant");
}

void Arbiter::take_survey(const std::vector<SurveyedGpu>& gpus) {
  unmanaged_.take(gpus);
  meters_.take(gpus);
  if (!gpus.empty() && !core_.core().in_grace()) device_claims_.look(core_.core().snapshot());
}

void Arbiter::serve(std::shared_ptr<Connection> connection) {
  const auto client = std::make_shared<Client>(std::move(connection));
  clients_.insert(client);
  client->connection().start(
      [this, its = client.get()](const Message& message) {
        messages_.receive(*its, message);
        if (its->role() != Role::session) return;
        survey_.wake();
        notices_.wake();
      },
      [this, its = client.get()](const std::string& reason) {
        closed(*its, reason);
        clients_.erase(its->shared_from_this());
      });
}

void Arbiter::closed(const Client& client, const std::string& reason) {
  if (!reason.empty())
    complaints_.add(client.peer().account, Cause::dropped, client.label() + ": dropped: " + reason);
  if (client.role() == Role::run) jobs_.run_closed(client);
  if (client.role() == Role::session) sessions_.closed(client);
}

}  // namespace sharedgpu
