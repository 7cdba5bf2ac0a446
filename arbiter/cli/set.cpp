// SPDX-License-Identifier: Apache-2.0
// sharedgpu set [gpu=LIST | partition=LIST | qos=LIST] KEY=VALUE...: changes settings of the running arbiter,
// for the node or for the named GPUs, partitions or QOS. With --list or --clear, lists or clears these
// changes.
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "arbiter/cli/ask_status.h"
#include "arbiter/cli/commands.h"
#include "config/nearest.h"
#include "protocol/ask.h"
#include "protocol/split.h"

namespace sharedgpu::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Returns a name in lower case and without dashes. The user may write a key as in sharedgpu.conf ("MaxWait"),
// or in lower case, with or without dashes ("max-wait").
std::string letters_of(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (c != '-') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

std::vector<std::string_view> names() {
  std::vector<std::string_view> all = section_kinds();
  for (const std::string_view key : section_keys()) all.push_back(key);
  return all;
}

std::string choices() {
  std::string text;
  for (const std::string_view name : names()) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

// Asks Slurm whether there is a partition of this name. Returns an empty string, or an error message. Without
// Slurm on this host, any name is accepted.
std::string check_partition(const std::string& name) {
  const bool is_plain = !name.empty() &&
                        name.find_first_not_of(
                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                            "_.@+-") == name.npos &&
                        name.front() != '-';
  if (!is_plain) return {};  // the parser of the settings reports that this is no name
  const std::string command = "exec scontrol show partition " + name + " 2>&1";
  FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return {};
  std::string said;
  std::array<char, 4096> piece{};
  while (const std::size_t size = std::fread(piece.data(), 1, piece.size(), pipe))
    said.append(piece.data(), size);
  const int status = pclose(pipe);
  const bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  return failed && said.find(name + " not found") != said.npos ? "Slurm has no partition '" + name + "'" : "";
}

// Returns what is wrong with the values in `lines`, or an empty string. Does not check lines without a value:
// such a line clears an override, and only the arbiter knows the overrides.
std::string lines_error(const std::string& lines) {
  std::string set;
  for (const std::string_view line : split(lines, '\n'))
    if (!line.empty() && line.back() != '=') set += std::string(line) + "\n";
  Settings settings;
  return change_settings(set, settings);
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
    const auto key = std::find_if(keys.begin(), keys.end(), [&](std::string_view each) {
      return letters_of(each) == letters_of(name);
    });
    const bool begins = std::find(kinds.begin(), kinds.end(), name) != kinds.end();
    const bool known = begins || key != keys.end();
    // These characters begin a comment in sharedgpu.conf.
    if (const std::size_t comment = change.find_first_of(";#"); comment != change.npos)
      return "'" + change + "': '" + change[comment] + "' cannot be in a value";
    if (!known || end == change.size() || change.find('\n') != change.npos)
      return "'" + change + "' is not NAME=VALUE with one of these: " + choices() +
             (known ? "" : did_you_mean(name, names()));
    if (!begins && !given.insert(letters_of(name)).second) return name + " is given twice";
    if (begins && !section.empty()) return "'" + change + "': one of gpu=, partition= and qos= at a time";
    if (name == "partition")
      for (const std::string_view partition : split(change.substr(end + 1), ','))
        if (std::string wrong = check_partition(std::string(partition)); !wrong.empty()) return wrong;
    if (begins)
      section = "[" + name + " " + change.substr(end + 1) + "]\n";
    else
      lines += std::string(*key) + change.substr(end) + "\n";
  }
  if (lines.empty()) return "no setting is given";
  lines = section + lines;
  std::string error = lines_error(lines);
  if (error.empty() && lines.size() >= sizeof SetLines::text) error = "too many settings for one command";
  return error;
}

// Sends lines of sharedgpu.conf to the arbiter. Returns the exit status.
int send(const Settings& settings, const std::string& lines) {
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

// Reads the list of overrides from the arbiter's status. Returns an empty string, or an error message.
std::string read_overrides(const Settings& settings, OrderedJson& overrides) {
  std::string text;
  if (std::string error = ask_status(settings.socket, answer_patience(settings.arbiter_timeout), text);
      !error.empty())
    return error;
  const OrderedJson status = OrderedJson::parse(text, nullptr, false);
  if (!status.is_object() || !status.contains("overrides"))
    return "the arbiter at " + settings.socket + " does not list overrides; is it older than this sharedgpu?";
  overrides = status["overrides"];
  return {};
}

struct SetArguments {
  std::string config;
  std::vector<std::string> changes;
  bool list = false;
  bool clear = false;
  bool json = false;
};

int list_or_clear(const Settings& settings, const SetArguments& arguments) {
  OrderedJson overrides;
  if (std::string error = read_overrides(settings, overrides); !error.empty()) {
    complain(error);
    return 1;
  }
  if (arguments.json) std::printf("%s\n", overrides.dump(2).c_str());
  for (const OrderedJson& each : overrides) {
    const std::string section = each.value("section", "");
    const std::string key = each.value("key", "");
    if (arguments.clear) {
      if (const int status = send(settings, section + "\n" + key + "=\n"); status != 0) return status;
    } else if (!arguments.json) {
      std::printf("%s%s%s=%s\n", section.c_str(), section.empty() ? "" : " ", key.c_str(),
                  each.value("value", "").c_str());
    }
  }
  return 0;
}

int change(const SetArguments& arguments) {
  Settings settings;
  if (!load_settings(arguments.config, settings)) return 2;
  if (arguments.list || arguments.clear) {
    if (arguments.changes.empty()) return list_or_clear(settings, arguments);
    complain("--list and --clear take no NAME=VALUE; NAME= clears a single override");
    return 2;
  }
  std::string lines;
  if (std::string error = lines_of(arguments.changes, lines); !error.empty()) {
    complain(error);
    return 2;
  }
  return send(settings, lines);
}

}  // namespace

void add_set(CLI::App& app, int& status) {
  auto arguments = std::make_shared<SetArguments>();
  CLI::App* command =
      app.add_subcommand("set", "Change settings of the running arbiter, for all GPUs or some");
  command->add_option("--config", arguments->config, "Settings")->type_name("FILE");
  command->add_option("changes", arguments->changes, "Any of these: " + choices())
      ->type_name("NAME=VALUE...");
  CLI::Option* clear = command->add_flag("--clear", arguments->clear,
                                         "Clear all overrides: the settings of the file apply again");
  CLI::Option* list = command->add_flag("--list", arguments->list, "List what has been set and not cleared");
  list->excludes(clear);
  command->add_flag("--json", arguments->json, "With --list: as JSON; see docs/json.md")->needs(list);
  command->callback([arguments, &status] { status = change(*arguments); });
}

}  // namespace sharedgpu::cli
