// SPDX-License-Identifier: Apache-2.0
// sharedgpu ledger: lists the leases on this node's GPUs, with holder, begin and end.
#include <pwd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "arbiter/cli/commands.h"
#include "arbiter/cli/table.h"
#include "arbiter/ledger/files.h"
#include "arbiter/ledger/lease_table.h"
#include "arbiter/ledger/reader.h"
#include "protocol/gpu_names.h"
#include "protocol/step_names.h"

namespace sharedgpu::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::string config;
  std::vector<std::string> files;
  std::uint32_t job = 0;
  std::string since;
  std::string until;
  std::string by = "step";
  std::string format = "table";
};

// Formats a time as local time. If `exact`, the text includes microseconds and the time zone; otherwise
// parse_moment() can read the text.
std::string format_moment(Nanoseconds moment, bool exact) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(moment);
  const std::time_t seconds = whole.count();
  std::tm parts = {};
  localtime_r(&seconds, &parts);
  std::array<char, 64> text{};
  std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (exact) {
    const long micro = static_cast<long>((moment - whole).count() / 1000);
    size += static_cast<std::size_t>(std::snprintf(text.data() + size, text.size() - size, ".%06ld", micro));
    std::strftime(text.data() + size, text.size() - size, "%z", &parts);
  }
  return text.data();
}

double seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

std::string user_name(std::uint32_t uid) {
  const passwd* user = getpwuid(uid);
  return user == nullptr ? std::to_string(uid) : user->pw_name;
}

// Returns the columns of a row, in the order in which all output formats show them.
Json fields_of(const LeaseRow& row, bool exact) {
  Json fields;
  fields["tenant"] = label_of(row.name, row.tenant);
  if (row.step) fields["step"] = row.step->job == 0 ? "-" : format_step(row.step->step);
  fields["user"] = user_name(row.uid);
  fields["gpu"] = format_gpu(row.gpu);
  fields["turns"] = row.turns;
  fields["lease_seconds"] = std::round(seconds(row.held) * 1e6) / 1e6;
  fields["first"] = format_moment(row.first, exact);
  fields["last"] = format_moment(row.last, exact);
  fields["open"] = row.open;
  fields["lost"] = row.lost.empty() ? "-" : row.lost;
  if (!row.step) fields["host_peak_bytes"] = row.host.count;
  return fields;
}

void add_records(const std::string& path, const std::string& text, LeaseTable& table) {
  const LedgerReplay replay = replay_ledger(text, [&](const Record& record) { table.add(record); });
  if (replay.damaged > 0)
    complain(path + ": passed over " + std::to_string(replay.damaged) + " damaged lines of " +
             std::to_string(replay.damaged + replay.records));
  if (replay.lost > 0)
    complain(path + ": lacks " + std::to_string(replay.lost) + " records that could not be written");
}

Status read_files_of_node(const std::string& path, LeaseTable& table) {
  std::vector<std::string> texts;
  if (Status read = read_ledger(path, Extent::all_files, texts); !read.ok()) return read;
  for (const std::string& text : texts) add_records(path, text, table);
  return {};
}

Status read_given_file(const std::string& path, LeaseTable& table) {
  std::string text;
  if (Status read = read_file(path, text); !read.ok()) return read;
  add_records(path, text, table);
  return {};
}

// Sorts the files of one ledger by age, since a shell's wildcard lists them in another order. Other files
// keep their order.
std::vector<std::string> oldest_first(std::vector<std::string> files) {
  const auto number_of = [](const std::string& file) -> long {
    const std::size_t dot = file.rfind('.');
    const std::string digits = dot == file.npos ? "" : file.substr(dot + 1);
    const bool is_number =
        !digits.empty() && digits.size() < 6 &&
        std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
    return is_number ? std::stol(digits) : 0;
  };
  const auto stem_of = [&](const std::string& file) {
    return number_of(file) == 0 ? file : file.substr(0, file.rfind('.'));
  };
  const bool one = std::all_of(files.begin(), files.end(), [&](const std::string& file) {
    return stem_of(file) == stem_of(files.front());
  });
  if (one)
    std::stable_sort(files.begin(), files.end(),
                     [&](const std::string& a, const std::string& b) { return number_of(a) > number_of(b); });
  return files;
}

int show(const Arguments& arguments) {
  Nanoseconds since = Nanoseconds::min();
  Nanoseconds until = Nanoseconds::max();
  std::string error = read_moment("--since", arguments.since, since);
  if (error.empty()) error = read_moment("--until", arguments.until, until);
  if (!error.empty()) {
    complain(error);
    return 2;
  }
  LeaseTable table;
  Status read;
  if (arguments.files.empty()) {
    Settings settings;
    if (!load_settings(arguments.config, settings)) return 2;
    read = read_files_of_node(settings.state_dir + "/ledger", table);
  }
  for (const std::string& file : oldest_first(arguments.files))
    if (read = read_given_file(file, table); !read.ok()) break;
  if (!read.ok()) {
    complain(read.message());
    return 1;
  }
  std::vector<LeaseRow> rows = within(table.leases(), since, until);
  if (arguments.job != 0) std::erase_if(rows, [&](const auto& row) { return row.name.job != arguments.job; });
  if (arguments.by == "step") rows = by_step(rows);
  if (arguments.by == "tenant") rows = by_tenant(rows);

  const bool exact = arguments.format != "table";
  LeaseRow any;
  if (arguments.by != "tenant") any.step.emplace();
  const Json header = fields_of(any, exact);
  Json list = Json::array();
  for (const LeaseRow& row : rows) list.push_back(fields_of(row, exact));
  print_rows(list, header, arguments.format);
  return 0;
}

}  // namespace

void add_ledger(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("ledger", "Show who held which GPU of this node, and when");
  command->add_option("--config", arguments->config, "Settings")->type_name("FILE");
  command->add_option("--job", arguments->job, "This Slurm job only")->type_name("JOB");
  command->add_option("--since", arguments->since, "Leases held at or after this time")->type_name("TIME");
  command->add_option("--until", arguments->until, "Leases held before this time")->type_name("TIME");
  command->add_option("--by", arguments->by, "One line per turn, step or tenant on each GPU")
      ->check(CLI::IsMember({"turn", "step", "tenant"}));
  command->add_option("--format", arguments->format, "Output format")
      ->check(CLI::IsMember({"table", "csv", "json"}));
  command->add_option("files", arguments->files, "Ledger files, oldest first (default: those of this node)")
      ->type_name("LEDGER...");
  command->callback([arguments, &status] { status = show(*arguments); });
}

}  // namespace sharedgpu::cli
