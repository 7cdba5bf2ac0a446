// SPDX-License-Identifier: Apache-2.0
// sharedgpu drain gpu LIST [REASON...] and sharedgpu undrain gpu LIST: forbids new tenants on these GPUs, or
// allows new tenants again.
#include <CLI/CLI.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "arbiter/cli/commands.h"
#include "protocol/ask.h"
#include "protocol/split.h"

namespace sharedgpu::cli {
namespace {

struct DrainArguments {
  std::string config;
  std::string kind;
  std::string gpus;
  std::vector<std::string> reason;
};

int change(const DrainArguments& arguments, bool drained) {
  Settings settings;
  if (!load_settings(arguments.config, settings)) return 2;
  DrainGpus request;
  request.drained = drained;
  GpuNames names;
  std::string wrong = parse_gpu_names(arguments.gpus, names);
  if (wrong.empty() && arguments.gpus.size() >= sizeof request.gpus) wrong = "too many GPUs for one command";
  if (!wrong.empty()) {
    complain(wrong);
    return 2;
  }
  arguments.gpus.copy(request.gpus, sizeof request.gpus - 1);
  join(arguments.reason, ' ').copy(request.reason, sizeof request.reason - 1);
  Message answer;
  if (int error = ask(settings.socket.c_str(), Message::of(request),
                      answer_patience(settings.arbiter_timeout), answer)) {
    complain("cannot reach the arbiter at " + settings.socket + ": " + std::strerror(error));
    return 1;
  }
  if (answer.type == MessageType::refused) {
    complain(answer.as<Refused>().reason);
    return 1;
  }
  const bool understood = answer.type == MessageType::drain_reply;
  if (understood && answer.as<DrainReply>().done != 0) return 0;
  complain(understood ? "only root, SlurmUser and AdminUsers may drain GPUs"
                      : "the arbiter at " + settings.socket +
                            " does not know this command; is it older than this sharedgpu?");
  return 1;
}

void add(CLI::App& app, int& status, bool drained) {
  auto arguments = std::make_shared<DrainArguments>();
  CLI::App* command = app.add_subcommand(drained ? "drain" : "undrain",
                                         drained ? "Place no more tenants on GPUs, until they are undrained"
                                                 : "Place tenants on drained GPUs again");
  command->add_option("--config", arguments->config, "Settings")->type_name("FILE");
  command->add_option("kind", arguments->kind, "Must be: gpu")->required()->check(CLI::IsMember({"gpu"}));
  command->add_option("gpus", arguments->gpus, "By number (0,2-3) or UUID")->type_name("LIST")->required();
  if (drained)
    command->add_option("reason", arguments->reason, "Shown in the status")->type_name("REASON...");
  command->callback([arguments, drained, &status] { status = change(*arguments, drained); });
}

}  // namespace

void add_drain(CLI::App& app, int& status) {
  add(app, status, true);
  add(app, status, false);
}

}  // namespace sharedgpu::cli
