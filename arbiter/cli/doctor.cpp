// SPDX-License-Identifier: Apache-2.0
// sharedgpu doctor [CHECK...]: examines this node, and says what is wrong and how to repair it.
#include "arbiter/cli/doctor.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "arbiter/cli/commands.h"

namespace sharedgpu::cli {
namespace {

struct DoctorArguments {
  std::string config;
  std::string root;
  bool json = false;
  bool list = false;
  std::vector<std::string> names;
};

// Returns the exit status.
int examine(const DoctorArguments& arguments) {
  const auto& checks = doctor::checks();
  if (arguments.list) {
    for (const doctor::Check& check : checks) std::printf("%-15s%s\n", check.name, check.examines);
    return 0;
  }
  for (const std::string& name : arguments.names)
    if (std::none_of(checks.begin(), checks.end(),
                     [&](const doctor::Check& check) { return check.name == name; })) {
      complain("no check '" + name + "'; sharedgpu doctor --list shows all");
      return 2;
    }
  const doctor::Host host(arguments.root);
  const auto& names = arguments.names;
  const bool with_slurm = std::any_of(checks.begin(), checks.end(), [&](const doctor::Check& check) {
    return check.asks_slurm &&
           (names.empty() || std::find(names.begin(), names.end(), check.name) != names.end());
  });
  const doctor::Node node = doctor::examine(host, arguments.config, with_slurm);
  const std::vector<doctor::Result> results = doctor::run_checks(node, arguments.names);
  const std::string text = arguments.json ? doctor::json_of(results) : doctor::text_of(results);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return doctor::is_any_wrong(results) ? 1 : 0;
}

}  // namespace

void add_doctor(CLI::App& app, int& status) {
  auto arguments = std::make_shared<DoctorArguments>();
  CLI::App* command = app.add_subcommand("doctor", "Examine this node: what is wrong, and how to mend it");
  command->add_option("--config", arguments->config, "Settings")->type_name("FILE");
  command->add_option("--root", arguments->root, "Examine the files below this folder instead of /")
      ->type_name("FOLDER");
  command->add_flag("--json", arguments->json, "As JSON; see docs/status-json.md");
  command->add_flag("--list", arguments->list, "List the checks");
  command->add_option("checks", arguments->names, "Only these checks")->type_name("CHECK...");
  command->callback([arguments, &status] { status = examine(*arguments); });
}

}  // namespace sharedgpu::cli
