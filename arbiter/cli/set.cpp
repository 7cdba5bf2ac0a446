// SPDX-License-Identifier: Apache-2.0
// sharedgpu set KEY=VALUE...: changes settings of the running arbiter.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "arbiter/cli/commands.h"
#include "protocol/ask.h"

namespace sharedgpu::cli {
namespace {

struct Changeable {
  const char* name;  // as it is given
  const char* key;   // in sharedgpu.conf
};
constexpr Changeable kChangeable[] = {{"policy", "Policy"}, {"quantum", "Quantum"}};

// Returns an empty string, or what is wrong with one of `changes`. Values are what they are in
// sharedgpu.conf.
std::string read_changes(const std::vector<std::string>& changes, Set& set) {
  for (const std::string& change : changes) {
    const std::size_t end = std::min(change.find('='), change.size());
    const auto* known =
        std::find_if(std::begin(kChangeable), std::end(kChangeable),
                     [&](const Changeable& each) { return change.compare(0, end, each.name) == 0; });
    if (known == std::end(kChangeable) || end == change.size())
      return "'" + change + "' is neither policy=NAME nor quantum=TIME";
    Settings settings;
    std::string error = parse_settings(known->key + change.substr(end) + "\n", "", settings);
    if (!error.empty()) return error.substr(error.find(' ') + 1);  // without the file and the line
    if (known == kChangeable) {
      std::strncpy(set.policy, settings.policy.c_str(), sizeof set.policy - 1);
    } else {
      set.quantum_given = 1;
      set.quantum = settings.quantum;
    }
  }
  return {};
}

int change(const std::string& config, const std::vector<std::string>& changes) {
  Settings settings;
  if (!load_settings(config, settings)) return 2;
  Set set;
  if (std::string error = read_changes(changes, set); !error.empty()) {
    complain(error);
    return 2;
  }
  Message answer;
  if (int error =
          ask(settings.socket.c_str(), Message::of(set), answer_patience(settings.arbiter_timeout), answer)) {
    complain("the arbiter at " + settings.socket + ": " + std::strerror(error));
    return 1;
  }
  const bool understood = answer.type == MessageType::set_reply;
  if (understood && answer.as<SetReply>().done != 0) return 0;
  complain(understood ? "only root, SlurmUser and AdminUsers may change settings"
                      : "the arbiter at " + settings.socket + " does not take that");
  return 1;
}

}  // namespace

void add_set(CLI::App& app, int& status) {
  struct Arguments {
    std::string config;
    std::vector<std::string> changes;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("set", "Change the policy or the quantum of the running arbiter");
  command->add_option("--config", arguments->config, "Settings")->type_name("FILE");
  command->add_option("changes", arguments->changes, "policy=NAME, quantum=TIME")
      ->type_name("KEY=VALUE...")
      ->required();
  command->callback([arguments, &status] { status = change(arguments->config, arguments->changes); });
}

}  // namespace sharedgpu::cli
