// SPDX-License-Identifier: Apache-2.0
// Parses the command lines of all of sharedgpu's programs, so that all of them report errors in the same way.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/nearest.h"

namespace sharedgpu {

// Returns an error message, such as "The following argument was not expected: --jsn; did you mean --json?;
// see sharedgpu status --help".
inline std::string wrong_usage(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  while (!text.empty() && (text.back() == '\n' || text.back() == '.')) text.pop_back();
  const auto given = app.get_subcommands();
  const CLI::App* subcommand = given.empty() ? nullptr : given.front();
  const CLI::App& own = subcommand == nullptr ? app : *subcommand;
  std::vector<std::string> names;
  for (const CLI::Option* option : own.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (const std::string& rest : own.remaining())
    if (rest.starts_with("--"))
      text += did_you_mean(rest.substr(0, rest.find('=')), {names.begin(), names.end()});
  return text + "; see " + app.get_name() + (subcommand == nullptr ? "" : " " + subcommand->get_name()) +
         " --help";
}

// Parses the command line. Returns an exit status if the program is to end: 0 after --help and --version, and
// 2 after an error, for which it has printed a message.
inline std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), wrong_usage(app, error).c_str());
    return 2;
  }
}

}  // namespace sharedgpu
