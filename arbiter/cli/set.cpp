// SPDX-License-Identifier: Apache-2.0
// sharedgpu set [gpu=LIST | partition=LIST | qos=LIST] KEY=VALUE...: changes settings of the running arbiter,
// for the node or for the named GPUs, partitions or QOS.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "arbiter/cli/commands.h"
#include "protocol/ask.h"

namespace sharedgpu::cli {
namespace {

// Converts "MaxWait" to "max-wait", the form on the command line.
std::string as_given(std::string_view key) {
  std::string name;
  for (const char c : key) {
    if (std::isupper(static_cast<unsigned char>(c)) != 0 && !name.empty()) name += '-';
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

std::string choices() {
  std::string text;
  for (std::string_view kind : section_kinds()) text += std::string(kind) + ", ";
  for (std::string_view key : section_keys()) text += as_given(key) + ", ";
  return text.substr(0, text.size() - 2);
}

// Converts `changes` to the equivalent `lines` of sharedgpu.conf. Returns an empty string, or an error
// message.
std::string lines_of(const std::vector<std::string>& changes, std::string& lines) {
  const std::vector<std::string_view> keys = section_keys();
  const std::vector<std::string_view> kinds = section_kinds();
  std::string section;
  std::set<std::string> given;
  for (const std::string& change : changes) {
    const std::size_t end = std::min(change.find('='), change.size());
    const std::string name = change.substr(0, end);
    const auto key =
        std::find_if(keys.begin(), keys.end(), [&](std::string_view each) { return as_given(each) == name; });
    const bool begins = std::find(kinds.begin(), kinds.end(), name) != kinds.end();
    const bool known = begins || key != keys.end();
    // These characters begin a comment in sharedgpu.conf.
    if (const std::size_t comment = change.find_first_of(";#"); comment != change.npos)
      return "'" + change + "': '" + change[comment] + "' cannot be in a value";
    if (!known || end == change.size() || change.find('\n') != change.npos)
      return "'" + change + "' is not NAME=VALUE with one of these: " + choices();
    if (!begins && !given.insert(name).second) return name + " is given twice";
    if (begins && !section.empty()) return "'" + change + "': one of gpu=, partition= and qos= at a time";
    if (begins)
      section = "[" + name + " " + change.substr(end + 1) + "]\n";
    else
      lines += std::string(*key) + change.substr(end) + "\n";
  }
  if (lines.empty()) return "no setting is given";
  lines = section + lines;
  Settings settings;
  std::string error = change_settings(lines, settings);
  if (error.empty() && lines.size() >= sizeof SetLines::text) error = "too many settings for one command";
  return error;
}

int change(const std::string& config, const std::vector<std::string>& changes) {
  Settings settings;
  if (!load_settings(config, settings)) return 2;
  std::string lines;
  if (std::string error = lines_of(changes, lines); !error.empty()) {
    complain(error);
    return 2;
  }
  SetLines set;
  lines.copy(set.text, sizeof set.text - 1);
  Message answer;
  if (int error =
          ask(settings.socket.c_str(), Message::of(set), answer_patience(settings.arbiter_timeout), answer)) {
    complain("cannot reach the arbiter at " + settings.socket + ": " + std::strerror(error));
    return 1;
  }
  if (answer.type == MessageType::refused) {
    complain(answer.as<Refused>().reason);
    return 1;
  }
  const bool understood = answer.type == MessageType::set_reply;
  if (understood && answer.as<SetReply>().done != 0) return 0;
  complain(understood ? "only root, SlurmUser and AdminUsers may change settings"
                      : "the arbiter at " + settings.socket +
                            " does not know this command; is it older than this sharedgpu?");
  return 1;
}

}  // namespace

void add_set(CLI::App& app, int& status) {
  struct Arguments {
    std::string config;
    std::vector<std::string> changes;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("set", "Change settings of the running arbiter, for all GPUs or some");
  command->add_option("--config", arguments->config, "Settings")->type_name("FILE");
  command->add_option("changes", arguments->changes, "Any of these: " + choices())
      ->type_name("NAME=VALUE...")
      ->required();
  command->callback([arguments, &status] { status = change(arguments->config, arguments->changes); });
}

}  // namespace sharedgpu::cli
