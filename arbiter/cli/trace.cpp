// SPDX-License-Identifier: Apache-2.0
// sharedgpu trace [--svg]: shows who had which GPU of this node, and when, as a trace for Perfetto or as a
// picture.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <set>

#include "arbiter/cli/commands.h"
#include "arbiter/cli/ledger_input.h"
#include "arbiter/cli/moment.h"
#include "arbiter/cli/trace_text.h"
#include "arbiter/cli/users.h"
#include "config/host_name.h"

namespace sharedgpu::cli {
namespace {

struct TraceArguments {
  LedgerInput input;
  std::uint32_t job = 0;
  std::string since;
  std::string until;
  bool svg = false;
};

Trace trace_of(const Timeline& timeline, const Period& period, std::uint32_t job) {
  Trace trace;
  trace.host = host_name();
  trace.spans = within(timeline.spans(), period.since, period.until);
  if (job != 0)
    std::erase_if(trace.spans,
                  [&](const Span& span) { return timeline.tenants().at(span.tenant).name.job != job; });
  for (const Span& span : trace.spans) {
    const auto [entry, is_new] = trace.tenants.try_emplace(span.tenant);
    if (!is_new) continue;
    const Timeline::Who& who = timeline.tenants().at(span.tenant);
    entry->second.label = label_of(who.name, span.tenant, who.element) + " (" + user_name(who.uid) + ")";
    entry->second.gpus.assign(who.gpus.begin(), who.gpus.end());
  }
  return trace;
}

int show_trace(const TraceArguments& arguments) {
  Period period;
  if (std::string error = read_period(arguments.since, arguments.until, period); !error.empty()) {
    complain(error);
    return 2;
  }
  Timeline timeline;
  if (const int status =
          read_ledger_input(arguments.input, [&](const Record& record) { timeline.add(record); });
      status != 0)
    return status;
  const Trace trace = trace_of(timeline, period, arguments.job);
  const std::string text = arguments.svg ? trace_as_svg(trace) : trace_as_json(trace);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace

void add_trace(CLI::App& app, int& status) {
  auto arguments = std::make_shared<TraceArguments>();
  CLI::App* command =
      app.add_subcommand("trace", "Show who had which GPU of this node, for Perfetto or as a picture");
  command->add_option("--config", arguments->input.config, "Settings")->type_name("FILE");
  command->add_option("--job", arguments->job, "This Slurm job only")->type_name("JOB");
  command->add_option("--since", arguments->since, "Only from TIME on")->type_name("TIME");
  command->add_option("--until", arguments->until, "Only before TIME")->type_name("TIME");
  CLI::Option* svg = command->add_flag("--svg", arguments->svg, "As an SVG picture");
  command
      ->add_flag_callback(
          "--json", [] {}, "As JSON in the Trace Event Format (the default)")
      ->excludes(svg);
  command
      ->add_option("files", arguments->input.files,
                   "Ledger files, oldest first (default: those of this node)")
      ->type_name("LEDGER...");
  command->callback([arguments, &status] { status = show_trace(*arguments); });
}

}  // namespace sharedgpu::cli
