// SPDX-License-Identifier: Apache-2.0
// The subcommands of `sharedgpu`, one file each. Each add function registers a subcommand. If the user has
// chosen this subcommand, it runs and sets `status` to the exit status.
//
// To add a subcommand:
//   1. Declare the add function of the subcommand here, and define it in arbiter/cli/NAME.cpp. Call the add
//      function in arbiter/cli/main.cpp, at the place that the subcommand is to have in `sharedgpu --help`.
//      List the file in arbiter/CMakeLists.txt.
//   2. Test the exit statuses of the subcommand in tests/unit/arbiter/cli/exit_statuses.sh, and its effect in
//      tests/integration. Regenerate options_sharedgpu.golden and exit_statuses.golden in
//      tests/unit/arbiter/cli (see tests/golden).
//   3. Document the subcommand in docs/man/sharedgpu.1, and in README.md, which has the output of `sharedgpu
//      --help`.
#pragma once

#include <string>

#include "config/settings.h"
#include "protocol/channel.h"

namespace CLI {
class App;
}

namespace sharedgpu::cli {

void add_doctor(CLI::App& app, int& status);
void add_drain(CLI::App& app, int& status);
void add_gres(CLI::App& app, int& status);
void add_ledger(CLI::App& app, int& status);
void add_reload(CLI::App& app, int& status);
void add_oci(CLI::App& app, int& status);
void add_report(CLI::App& app, int& status);
// Returns the number of words of `argv` that `app` must parse. The remaining words belong to the user's
// command.
int add_run(CLI::App& app, int argc, char** argv, int& status);
void add_set(CLI::App& app, int& status);
void add_status(CLI::App& app, int& status);
void add_supervise(CLI::App& app, int& status);
void add_top(CLI::App& app, int& status);
void add_trace(CLI::App& app, int& status);

// Writes "sharedgpu: TEXT" to standard error.
void complain(const std::string& text);

// Loads the settings from the file `config`, or from the default file if `config` is empty. SHAREDGPU_SOCKET
// overrides the socket. If the settings cannot be read, complains, sets the default settings and returns
// false.
bool load_settings(const std::string& config, Settings& settings);

// Finds a file of this installation. `installed` is its path in the install tree and `built` its path in the
// build tree, both relative to the folder of this program. Returns an empty path if there is no such file.
std::string find_sibling(const char* installed, const char* built);

}  // namespace sharedgpu::cli
