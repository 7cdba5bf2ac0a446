// SPDX-License-Identifier: Apache-2.0
// sharedgpu reload: the running arbiter reads its file of settings again.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "arbiter/cli/commands.h"
#include "protocol/ask.h"
#include "protocol/environment.h"
#include "protocol/split.h"

namespace sharedgpu::cli {
namespace {

using Json = nlohmann::json;

std::string read_text(int file, std::size_t size) {
  std::string text(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t some = pread(file, text.data() + done, size - done, static_cast<off_t>(done));
    if (some <= 0) break;
    done += static_cast<std::size_t>(some);
  }
  text.resize(done);
  return text;
}

// Returns an empty string, or the reason why there is no answer.
std::string ask_to_reload(const std::string& socket, Nanoseconds patience, std::string& text) {
  Channel channel;
  if (const int error = connect_patiently(socket.c_str(), patience, channel))
    return "cannot reach the arbiter at " + socket + ": " + std::strerror(error);
  Message answer;
  UniqueFd file;
  const std::string too_old =
      "the arbiter at " + socket + " does not know this command; is it older than this sharedgpu?";
  if (const int error = ask(channel, Message::of(ReloadSettings{}), patience, answer, file))
    return error == ECONNRESET ? too_old
                               : "the arbiter at " + socket + " does not answer: " + std::strerror(error);
  if (answer.type == MessageType::refused) return answer.as<Refused>().reason;
  if (answer.type != MessageType::reload_reply) return too_old;
  if (answer.as<ReloadReply>().done == 0 || !file)
    return "only root, SlurmUser and AdminUsers may reload the settings";
  text = read_text(file.get(), static_cast<std::size_t>(answer.as<ReloadReply>().size));
  return {};
}

void print_keys(const Json& answer, const char* field, const char* what) {
  std::vector<std::string> keys = answer.value(field, std::vector<std::string>());
  if (!keys.empty()) std::printf("%s: %s\n", what, join(keys, ' ').c_str());
}

// Returns the exit status.
int print(const std::string& text, bool json) {
  try {
    const Json answer = Json::parse(text);
    const bool failed = answer.at("error").is_string();
    if (json) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      return failed ? 1 : 0;
    }
    if (failed) {
      complain(answer["error"].get<std::string>());
      complain("the arbiter keeps the settings that it has");
      return 1;
    }
    if (answer.at("changed").empty()) std::printf("no live key has changed\n");
    print_keys(answer, "changed", "changed");
    print_keys(answer, "overridden", "still overridden by sharedgpu set");
    print_keys(answer, "need_restart", "need a restart of the arbiter");
    if (answer.value("capacity_waits", false))
      std::printf("a GPU gets its smaller capacity when no program uses it\n");
    return 0;
  } catch (const Json::exception& failure) {
    complain(std::string("the arbiter's answer: ") + failure.what());
    return 1;
  }
}

// Takes Socket= even from a file with errors, since the arbiter is to report the errors.
Settings settings_with_socket(const std::string& config) {
  Settings settings;
  static_cast<void>(read_in_spite_of_errors(config.empty() ? kDefaultConfigFile : config, settings));
  const char* socket = std::getenv(environment::kSocket);
  if (socket != nullptr && *socket != '\0') settings.socket = socket;
  return settings;
}

int reload(const std::string& config, bool json) {
  const Settings settings = settings_with_socket(config);
  std::string text;
  const Nanoseconds patience = answer_patience(settings.arbiter_timeout);
  if (const std::string error = ask_to_reload(settings.socket, patience, text); !error.empty()) {
    complain(error);
    return 1;
  }
  return print(text, json);
}

}  // namespace

void add_reload(CLI::App& app, int& status) {
  struct Arguments {
    std::string config;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("reload", "Let the running arbiter read its settings again");
  command->add_option("--config", arguments->config, "Settings, for the arbiter's socket")->type_name("FILE");
  command->add_flag("--json", arguments->json, "As JSON; see docs/status-json.md");
  command->callback([arguments, &status] { status = reload(arguments->config, arguments->json); });
}

}  // namespace sharedgpu::cli
