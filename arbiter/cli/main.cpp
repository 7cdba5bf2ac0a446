// SPDX-License-Identifier: Apache-2.0
// sharedgpu: the command.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "arbiter/cli/commands.h"
#include "config/command_line.h"
#include "config/nearest.h"

int main(int argc, char** argv) {
  CLI::App app("Share GPUs between jobs, each as if it had the whole of their memory.", "sharedgpu");
  app.set_version_flag("--version", SHAREDGPU_VERSION);
  app.require_subcommand(1);
  int status = 0;
  sharedgpu::cli::add_gres(app, status);
  const int own = sharedgpu::cli::add_run(app, argc, argv, status);
  sharedgpu::cli::add_status(app, status);
  sharedgpu::cli::add_top(app, status);
  sharedgpu::cli::add_set(app, status);
  sharedgpu::cli::add_reload(app, status);
  sharedgpu::cli::add_drain(app, status);
  sharedgpu::cli::add_ledger(app, status);
  sharedgpu::cli::add_trace(app, status);
  sharedgpu::cli::add_report(app, status);
  sharedgpu::cli::add_doctor(app, status);
  sharedgpu::cli::add_oci(app, status);
  sharedgpu::cli::add_supervise(app, status);
  // Reports an unknown subcommand by its name: CLI11 would only report that a subcommand is required.
  const auto known = app.get_subcommands({});
  auto is_given = [&](const CLI::App* subcommand) { return subcommand->check_name(argv[1]); };
  if (argc > 1 && argv[1][0] != '-' && std::none_of(known.begin(), known.end(), is_given)) {
    std::vector<std::string> names;
    for (const CLI::App* subcommand : known) names.push_back(subcommand->get_name());
    sharedgpu::cli::complain("no subcommand '" + std::string(argv[1]) + "'" +
                             sharedgpu::did_you_mean(argv[1], {names.begin(), names.end()}) +
                             "; see sharedgpu --help");
    return 2;
  }
  if (const auto ended = sharedgpu::parse_command_line(app, own, argv)) return *ended;
  // The exit status is not 0 if the output is incomplete, so that a script does not use a part of a table as
  // if it were the whole table. fflush() does not report that an earlier write failed, but ferror() does.
  const bool is_flushed = std::fflush(stdout) == 0 && std::cout.flush();
  if (!is_flushed || std::ferror(stdout) != 0) {
    sharedgpu::cli::complain(std::string("standard output: ") +
                             (is_flushed ? "not all could be written" : std::strerror(errno)));
    return status == 0 ? 1 : status;
  }
  return status;
}
