// SPDX-License-Identifier: Apache-2.0
// The subcommands of `sharedgpu`, one file each. Each adds itself to the command line and runs when chosen;
// what it returns is the exit status.
#pragma once

#include <string>

#include "config/settings.h"
#include "protocol/channel.h"

namespace CLI {
class App;
}

namespace sharedgpu::cli {

void add_drain(CLI::App& app, int& status);
void add_gres(CLI::App& app, int& status);
void add_ledger(CLI::App& app, int& status);
void add_report(CLI::App& app, int& status);
// Returns how many of the words are to be parsed: the command's own follow.
int add_run(CLI::App& app, int argc, char** argv, int& status);
void add_set(CLI::App& app, int& status);
void add_status(CLI::App& app, int& status);
void add_supervise(CLI::App& app, int& status);

// Writes "sharedgpu: TEXT" to standard error.
void complain(const std::string& text);

// The settings of `config`, or those of the default file where it is empty; then the socket that
// SHAREDGPU_SOCKET names, if it does. False, with a complaint, where they cannot be read.
bool load_settings(const std::string& config, Settings& settings);

// A file of this installation, by its place in the install tree or, beside the build's binaries, in the build
// tree; both relative to this program. Empty where there is none.
std::string find_sibling(const char* installed, const char* built);

}  // namespace sharedgpu::cli
