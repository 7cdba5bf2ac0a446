// SPDX-License-Identifier: Apache-2.0
// sharedgpu report: sums up the units and GPU time of users from sacct's data alone.
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "arbiter/cli/commands.h"
#include "arbiter/cli/moment.h"
#include "arbiter/cli/site_report.h"
#include "arbiter/cli/table.h"
#include "protocol/split.h"

namespace sharedgpu::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct ReportArguments {
  std::string config;
  std::string since;
  std::string until;
  std::uint32_t units_per_gpu = 0;
  std::string format = "table";
};

// Formats a time in the format of sacct.
std::string format_time(std::time_t time) {
  std::tm parts = {};
  localtime_r(&time, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return text.data();
}

std::string format_time(Nanoseconds moment) {
  return format_time(std::time_t{std::chrono::floor<std::chrono::seconds>(moment).count()});
}

// Returns the first second of the month that comes `months` months after the current one.
std::string begin_of_month(int months) {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  localtime_r(&now, &parts);
  std::tm begin = {};
  begin.tm_year = parts.tm_year;
  begin.tm_mon = parts.tm_mon + months;
  begin.tm_mday = 1;
  begin.tm_isdst = -1;
  return format_time(std::mktime(&begin));
}

// Reads the output of sacct. Returns an empty string, or an error message. `since` and `until` are times that
// this file has formatted, so they contain no shell metacharacters.
std::string ask_sacct(const std::string& since, const std::string& until, std::string& text) {
  const std::string command =
      "exec env -u SLURM_TIME_FORMAT sacct --allusers --duplicates --noconvert --noheader --parsable2 "
      "--starttime=" +
      since + " --endtime=" + until + " --delimiter=" + kSacctDelimiter + " --format=" + kSacctColumns;
  FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return std::string("sacct: ") + std::strerror(errno);
  std::array<char, 1 << 16> buffer{};
  while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), pipe))
    text.append(buffer.data(), size);
  const int status = pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return "sacct failed";  // sacct has printed the reason
}

OrderedJson fields_of(const SiteReport::Who& who, const SiteReport::Sums& sums, std::uint32_t units_per_gpu) {
  const auto rounded = [](double value) { return std::round(value * 1e6) / 1e6; };
  const auto hours = [&](double seconds) { return rounded(seconds / 3600); };
  const double share = static_cast<double>(sums.unit_seconds) / units_per_gpu;
  OrderedJson fields;
  fields["user"] = who.user;
  fields["account"] = who.account;
  fields["partition"] = who.partition;
  fields["jobs"] = sums.jobs;
  fields["unit_hours"] = hours(static_cast<double>(sums.unit_seconds));
  fields["lease_hours"] = hours(sums.lease_seconds);
  fields["efficiency"] = share > 0 ? rounded(sums.lease_seconds / share) : 0.0;
  fields["waiting_hours"] = hours(sums.waited_seconds);
  fields["swap_gib"] = rounded(sums.swap_mebibytes / 1024);
  return fields;
}

int report(const ReportArguments& arguments) {
  Period period;
  std::string error = read_period(arguments.since, arguments.until, period);
  if (!error.empty()) {
    complain(error);
    return 2;
  }
  Settings settings;
  if (arguments.units_per_gpu == 0 && !load_settings(arguments.config, settings)) return 2;
  const std::uint32_t units_per_gpu =
      arguments.units_per_gpu != 0 ? arguments.units_per_gpu : settings.units_per_gpu;
  const std::string since = arguments.since.empty() ? begin_of_month(-1) : format_time(period.since);
  std::string until = arguments.since.empty() ? begin_of_month(0) : format_time(std::time(nullptr) + 1);
  if (!arguments.until.empty()) until = format_time(period.until);
  if (until <= since) {
    complain("--until " + until + " is not after --since " + since);
    return 2;
  }
  std::string text;
  if (error = ask_sacct(since, until, text); !error.empty()) {
    complain(error);
    return 1;
  }
  SiteReport sums(since, until);
  for (std::string_view line : split(text, '\n'))
    if (!line.empty() && !sums.add(line))
      complain("skipped a line of sacct that is not understood: " + std::string(line));
  if (sums.untold() > 0)
    complain("sacct has no lease time for " + std::to_string(sums.untold()) +
             " jobs that held units; see docs/accounting.md");
  OrderedJson rows = OrderedJson::array();
  for (const auto& [who, sum] : sums.sums()) rows.push_back(fields_of(who, sum, units_per_gpu));
  print_rows(rows, fields_of({}, {}, units_per_gpu), arguments.format);
  return 0;
}

}  // namespace

void add_report(CLI::App& app, int& status) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* command = app.add_subcommand("report", "Show the GPU use of each user and account, from sacct");
  command->add_option("--config", arguments->config, "Settings")->type_name("FILE");
  command
      ->add_option("--since", arguments->since,
                   "Jobs that ended at or after this time (default: all of last month)")
      ->type_name("TIME");
  command->add_option("--until", arguments->until, "Jobs that ended before this time")->type_name("TIME");
  command
      ->add_option("--units-per-gpu", arguments->units_per_gpu,
                   "Use this in place of UnitsPerGpu in the settings")
      ->check(CLI::Range(1u, 1000u))
      ->type_name("N");
  CLI::Option* format = command->add_option("--format", arguments->format, "Output format")
                            ->check(CLI::IsMember({"table", "csv", "json"}));
  command
      ->add_flag_callback(
          "--json", [arguments] { arguments->format = "json"; }, "As --format json")
      ->excludes(format);
  command->callback([arguments, &status] { status = report(*arguments); });
}

}  // namespace sharedgpu::cli
