// SPDX-License-Identifier: Apache-2.0
// sharedgpu status [--me] [--json]: shows GPUs, tenants, their memory and time, and the lease holders.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "arbiter/cli/ask_status.h"
#include "arbiter/cli/commands.h"
#include "arbiter/cli/node_status.h"
#include "arbiter/cli/standing.h"
#include "arbiter/cli/users.h"
#include "config/quantities.h"
#include "protocol/ask.h"
#include "protocol/environment.h"
#include "protocol/split.h"

namespace sharedgpu::cli {
namespace {

using Json = nlohmann::json;

std::string size_text(const Json& json, const char* field) {
  return format_size(Bytes{json.value(field, std::uint64_t{0})});
}

// A limit; "-": unlimited.
std::string limit_of(const Json& tenant, const char* field) {
  const auto limit = tenant.find(field);
  return limit == tenant.end() || limit->is_null() ? "-" : size_text(tenant, field);
}

std::string join(const Json& list) {
  std::string text;
  for (const Json& item : list)
    text += (text.empty() ? "" : ",") + (item.is_string() ? item.get<std::string>() : item.dump());
  return text.empty() ? "-" : text;
}

// Prints "policy credit, turns 7.6 s (swap-overhead), handoffs 0.400 s": the policy, the current length of
// turns and the rule that set it, and the mean duration of recent handoffs.
void print_turns(const Json& gpu) {
  std::printf("  policy %s, turns %.1f s (%s)", gpu.value("policy", "").c_str(),
              gpu.value("quantum_seconds", 0.0), gpu.value("quantum_rule", "").c_str());
  const double handoff = gpu.value("handoff_seconds", 0.0);
  if (handoff > 0) std::printf(", handoffs %.3f s", handoff);
  std::printf("\n");
}

// Names the job of an unmanaged process: by the name of the job's tenant if there is one, otherwise by its
// number.
std::string job_of(const Json& status, const Json& process) {
  const Json& job = process.at("job");
  for (const Json& tenant : status.at("tenants"))
    if (tenant.value("job", Json()) == job) return tenant.value("name", "");
  return "job " + job.dump();
}

std::string user_of(const Json& process) { return user_name(process.value("uid", 0u)); }

// Prints "unmanaged 48 GiB: pid 4711 (ann, job 12) 48 GiB": memory of processes without a session on the GPU.
void print_unmanaged(const Json& status, const Json& gpu) {
  const auto processes = gpu.find("unmanaged");
  if (processes == gpu.end() || processes->empty()) return;
  std::printf("  unmanaged %s:", size_text(gpu, "unmanaged_bytes").c_str());
  for (const Json& process : *processes) {
    std::printf("%s pid %llu (%s%s) %s", &process == &processes->front() ? "" : ",",
                process.value("pid", 0ull), user_of(process).c_str(),
                process.value("job", Json()).is_null() ? "" : (", " + job_of(status, process)).c_str(),
                size_text(process, "bytes").c_str());
  }
  std::printf("\n");
}

// Returns true if tenants use the GPU, and surveys do not show their memory on it.
bool is_unverified(const Json& status, const Json& gpu) {
  const auto uses = [&](const Json& tenant) {
    const Json& all = tenant.at("gpus");
    return std::find(all.begin(), all.end(), gpu.at("uuid")) != all.end();
  };
  const Json& tenants = status.at("tenants");
  return !gpu.value("surveyed", true) && std::any_of(tenants.begin(), tenants.end(), uses);
}

// "  (lost: Xid 79)  (drained: fan is replaced)"
std::string health_of(const Json& gpu) {
  std::string text;
  const auto add = [&](const std::string& what, const char* reason) {
    const Json why = gpu.value(reason, Json());
    text += "  (" + what + (why.is_string() ? ": " + why.get<std::string>() : "") + ")";
  };
  const std::string condition = gpu.value("condition", "healthy");
  if (condition != "healthy") add(condition, "fault");
  if (gpu.value("drained", false)) add("drained", "drain_reason");
  return text;
}

void print_gpus(const Json& status) {
  std::printf("policy %s\n", status.value("policy", "").c_str());
  for (const Json& gpu : status.at("gpus")) {
    std::printf("%u: %s  %s%s%s\n", gpu.value("number", 0u), gpu.value("uuid", "").c_str(),
                gpu.value("name", "").c_str(), gpu.value("verified", true) ? "" : "  (size unverified)",
                health_of(gpu).c_str());
    std::printf("  units %llu, capacity %s of %s, allocated %s, resident %s, contexts %s%s%s\n",
                gpu.value("units", 0ull), size_text(gpu, "capacity_bytes").c_str(),
                size_text(gpu, "total_bytes").c_str(), size_text(gpu, "footprint_bytes").c_str(),
                size_text(gpu, "resident_bytes").c_str(), size_text(gpu, "context_bytes").c_str(),
                is_unverified(status, gpu) ? " (unverified)" : "",
                gpu.value("contended", false) ? ", contended" : "");
    print_unmanaged(status, gpu);
    print_turns(gpu);
  }
  if (status.at("gpus").empty()) std::printf("no GPU known yet\n");
}

// The numbers of the GPUs that the tenant uses or is placed on.
std::string gpus_of(const Json& status, const Json& tenant) {
  Json numbers = Json::array();
  for (const Json& gpu : status.at("gpus")) {
    auto names = [&](const char* list) {
      const Json& all = tenant.at(list);
      return std::find(all.begin(), all.end(), gpu.at("uuid")) != all.end();
    };
    if (names("gpus") || names("placed")) numbers.push_back(gpu.at("number"));
  }
  std::sort(numbers.begin(), numbers.end());
  return join(numbers);
}

// Prints how many deadlines the tenant has met and missed, and the share of time that deadlines of other
// tenants leave to the tenant.
void print_deadlines(const Json& tenant) {
  if (tenant.value("deadline_seconds", 0.0) > 0)
    std::printf("  (deadlines %llu met, %llu missed)", tenant.value("deadlines_met", 0ull),
                tenant.value("deadlines_missed", 0ull));
  const double allowed = tenant.value("share_allowed", 1.0);
  if (allowed < tenant.value("share_limit", 1.0))
    std::printf("  (at most %.1f%% of the time)", 100 * allowed);
}

// Prints why the tenant is overdue on a GPU that others wait for. Returns false if the tenant is not overdue.
bool print_overdue(const Json& tenant) {
  const Json overdue = tenant.value("overdue", Json());
  if (!overdue.is_object()) return false;
  const std::string reason = overdue.value("waits_for", "");
  const char* text = reason == "stopped"    ? "it is stopped"
                     : reason == "answer"   ? "it does not answer"
                     : reason == "eviction" ? "it has not evicted its memory"
                                            : "work on the GPU is not finished";
  std::printf("  (others wait since %.0f s: %s", overdue.value("seconds", 0.0), text);
  if (const Json free = overdue.value("free_host_bytes", Json()); free.is_number())
    std::printf("; it says that it has no host memory, though %s are free for its job",
                size_text(overdue, "free_host_bytes").c_str());
  std::printf(")");
  return true;
}

// Prints how much the tenant's reports of memory differ from the memory that its processes have.
void print_differences(const Json& tenant) {
  const auto print = [&](const char* field, const char* before, const char* after) {
    if (tenant.value(field, std::uint64_t{0}) > 0)
      std::printf("  (%s %s %s)", before, size_text(tenant, field).c_str(), after);
  };
  print("unreported_bytes", "has", "of GPU memory that it does not report");
  print("unseen_bytes", "reports", "of GPU memory that NVML does not show");
  print("overreported_host_bytes", "reports", "of host memory that it does not have");
}

void print_tenants(const Json& status) {
  if (status.at("tenants").empty()) return;
  std::printf("\n%-16s %-10s  %-8s %11s %11s %11s %11s %11s %11s %9s  %-8s %s\n", "TENANT", "USER", "STATE",
              "ALLOCATED", "RESIDENT", "HOST", "BUDGET", "BY UNITS", "BY JOB", "LEASE", "GPUS", "PIDS");
  for (const Json& tenant : status.at("tenants")) {
    std::string state = tenant.value("state", "");
    if (state == "out") state = tenant.value("wants", false) ? "waiting" : "idle";
    const bool stopped = tenant.value("stopped", false);
    if (stopped) state = "stopped";
    const double leaving = stopped ? 0 : tenant.value("leaving_seconds", 0.0);
    std::printf("%-16s %-10s  %-8s %11s %11s %11s %11s %11s %11s %8.1fs  %-8s %s",
                tenant.value("name", "").c_str(), user_of(tenant).c_str(), state.c_str(),
                size_text(tenant, "footprint_bytes").c_str(), size_text(tenant, "resident_bytes").c_str(),
                size_text(tenant, "host_bytes").c_str(), limit_of(tenant, "host_budget_bytes").c_str(),
                limit_of(tenant, "units_memory_bytes").c_str(), limit_of(tenant, "job_memory_bytes").c_str(),
                tenant.value("lease_seconds", 0.0), gpus_of(status, tenant).c_str(),
                join(tenant.at("pids")).c_str());
    if (!print_overdue(tenant) && leaving >= 1) std::printf("  (asked to leave %.0f s ago)", leaving);
    if (tenant.value("stuck", false) && !stopped) std::printf("  (cannot evict)");
    if (tenant.value("away_bytes", std::uint64_t{0}) > 0)
      std::printf("  (larger than the GPU: %s away)", size_text(tenant, "away_bytes").c_str());
    print_deadlines(tenant);
    print_differences(tenant);
    if (const Json group = tenant.value("host_group", Json()); group.is_object())
      std::printf("  (host memory: highest %s, limit %s)", size_text(group, "highest_bytes").c_str(),
                  size_text(group, "limit_bytes").c_str());
    if (const Json lost = tenant.value("lost_gpu", Json()); lost.is_object())
      std::printf("  (its GPU was lost: %s)", lost.value("fault", "").c_str());
    std::printf("\n");
  }
}

template <class Number>
std::optional<Number> number_in_environment(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? std::nullopt : parse_number<Number>(text);
}

// The caller's job as users know it: "22", or "21_1" for an element of a job array.
std::string own_job(std::uint32_t job) {
  const auto array = number_in_environment<std::uint32_t>("SLURM_ARRAY_JOB_ID");
  const auto index = number_in_environment<std::uint32_t>("SLURM_ARRAY_TASK_ID");
  return array && index ? std::to_string(*array) + "_" + std::to_string(*index) : std::to_string(job);
}

// Prints the state of the caller's tenants, and why they wait.
int show_own(const std::string& text, bool as_json) {
  NodeStatus status;
  if (std::string error = parse_status(text, status); !error.empty()) {
    complain(error);
    return 1;
  }
  const Asker asker{.job = number_in_environment<std::uint32_t>("SLURM_JOB_ID"),
                    .run = number_in_environment<std::uint64_t>(environment::kRun),
                    .uid = getuid()};
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const NodeStatus::Tenant* tenant : tenants_of(status, asker)) {
    const Standing standing = standing_of(status, *tenant, user_name);
    if (as_json)
      list.push_back(json_of(standing));
    else
      std::printf("%s\n", sentences(standing).c_str());
    if (!as_json) list.push_back(nullptr);
  }
  if (as_json)
    std::printf("%s\n", nlohmann::ordered_json{{"tenants", list}}
                            .dump(2, ' ', false, Json::error_handler_t::replace)
                            .c_str());
  else if (list.empty() && asker.job)
    std::printf("Job %s has not used a shared GPU of this node yet.\n", own_job(*asker.job).c_str());
  else if (list.empty())
    std::printf("You use no shared GPU of this node.\n");
  return 0;
}

int show(const std::string& config, bool json, bool me) {
  Settings settings;
  if (!load_settings(config, settings)) return 2;
  std::string text;
  if (std::string error = ask_status(settings.socket, answer_patience(settings.arbiter_timeout), text);
      !error.empty()) {
    complain(error);
    return 1;
  }
  if (me) return show_own(text, json);
  try {
    if (json) {
      std::printf("%s\n", nlohmann::ordered_json::parse(text).dump(2).c_str());
      return 0;
    }
    Json status = Json::parse(text);
    print_gpus(status);
    print_tenants(status);
  } catch (const Json::exception& failure) {
    complain(std::string("the arbiter's answer: ") + failure.what());
    return 1;
  }
  return 0;
}

}  // namespace

void add_status(CLI::App& app, int& status) {
  struct Arguments {
    std::string config;
    bool json = false;
    bool me = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("status", "Show GPUs, tenants and who holds the lease");
  command->add_option("--config", arguments->config, "Settings")->type_name("FILE");
  command->add_flag("--json", arguments->json, "As JSON; see docs/json.md");
  command->add_flag("--me", arguments->me, "Where the job or run of the caller stands, and why it waits");
  command->callback(
      [arguments, &status] { status = show(arguments->config, arguments->json, arguments->me); });
}

}  // namespace sharedgpu::cli
