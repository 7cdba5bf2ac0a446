// SPDX-License-Identifier: Apache-2.0
// sharedgpu ledger: lists the leases on this node's GPUs, with holder, begin and end.
#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "arbiter/cli/commands.h"
#include "arbiter/cli/ledger_input.h"
#include "arbiter/cli/moment.h"
#include "arbiter/cli/table.h"
#include "arbiter/cli/users.h"
#include "arbiter/ledger/lease_table.h"
#include "protocol/gpu_names.h"
#include "protocol/step_names.h"

namespace sharedgpu::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct LedgerArguments {
  LedgerInput input;
  std::uint32_t job = 0;
  std::string since;
  std::string until;
  std::string by = "step";
  std::string format = "table";
};

// Formats a time as local time. If `exact`, the text includes microseconds and the time zone. A text without
// them can be read by parse_moment().
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

// Returns the columns of a row, in the order in which all output formats show them.
OrderedJson fields_of(const LeaseRow& row, bool exact) {
  OrderedJson fields;
  fields["tenant"] = label_of(row.name, row.tenant, row.element);
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

int show_ledger(const LedgerArguments& arguments) {
  Period period;
  if (std::string error = read_period(arguments.since, arguments.until, period); !error.empty()) {
    complain(error);
    return 2;
  }
  LeaseTable table;
  if (const int status = read_ledger_input(arguments.input, [&](const Record& record) { table.add(record); });
      status != 0)
    return status;
  std::vector<LeaseRow> rows = within(table.leases(), period.since, period.until);
  if (arguments.job != 0) std::erase_if(rows, [&](const auto& row) { return row.name.job != arguments.job; });
  if (arguments.by == "step") rows = by_step(rows);
  if (arguments.by == "tenant") rows = by_tenant(rows);

  const bool exact = arguments.format != "table";
  LeaseRow any;
  if (arguments.by != "tenant") any.step.emplace();
  const OrderedJson header = fields_of(any, exact);
  OrderedJson list = OrderedJson::array();
  for (const LeaseRow& row : rows) list.push_back(fields_of(row, exact));
  print_rows(list, header, arguments.format);
  return 0;
}

}  // namespace

void add_ledger(CLI::App& app, int& status) {
  auto arguments = std::make_shared<LedgerArguments>();
  CLI::App* command = app.add_subcommand("ledger", "Show who held which GPU of this node, and when");
  command->add_option("--config", arguments->input.config, "Settings")->type_name("FILE");
  command->add_option("--job", arguments->job, "This Slurm job only")->type_name("JOB");
  command->add_option("--since", arguments->since, "Leases held at or after this time")->type_name("TIME");
  command->add_option("--until", arguments->until, "Leases held before this time")->type_name("TIME");
  command->add_option("--by", arguments->by, "One line per turn, step or tenant on each GPU")
      ->check(CLI::IsMember({"turn", "step", "tenant"}));
  CLI::Option* format = command->add_option("--format", arguments->format, "Output format")
                            ->check(CLI::IsMember({"table", "csv", "json"}));
  command
      ->add_flag_callback(
          "--json", [arguments] { arguments->format = "json"; }, "As --format json")
      ->excludes(format);
  command
      ->add_option("files", arguments->input.files,
                   "Ledger files, oldest first (default: those of this node)")
      ->type_name("LEDGER...");
  command->callback([arguments, &status] { status = show_ledger(*arguments); });
}

}  // namespace sharedgpu::cli
