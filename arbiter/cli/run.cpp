// SPDX-License-Identifier: Apache-2.0
// sharedgpu run -- COMMAND...: runs a command as a tenant of its own.
//
// The command replaces this process, so signals and the exit status are its own; with --deadline-from-stderr
// it is a child instead. The command and the processes that it starts inherit the connection: the tenant
// lives until the last of them ends.
#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "arbiter/cli/commands.h"
#include "arbiter/cli/deadlines.h"
#include "config/quantities.h"
#include "protocol/ask.h"
#include "protocol/backend_names.h"
#include "protocol/deadline_pipe.h"
#include "protocol/environment.h"
#include "protocol/gpu_names.h"
#include "protocol/preload.h"
#include "protocol/split.h"

namespace sharedgpu::cli {
namespace {

struct Arguments {
  std::string config;
  std::optional<std::string> memory;
  std::optional<std::string> share;
  std::optional<std::string> backend;
  std::optional<std::string> priority;
  std::optional<std::string> deadline;
  bool deadline_from_stderr = false;
  std::optional<std::string> gpus;
  std::optional<std::string> user;
  std::optional<std::string> units;
  std::vector<std::string> command;
};

bool parse_percentage(std::string_view text, std::uint32_t& percent) {
  if (!text.empty() && text.back() == '%') text.remove_suffix(1);
  percent = parse_number<std::uint32_t>(text).value_or(0);
  return percent >= 1 && percent <= 100;
}

// Parses "REQUEST" or "REQUEST:LIMIT".
bool parse_share(const std::string& text, JobOptions& options) {
  std::size_t colon = text.find(':');
  if (!parse_percentage(std::string_view(text).substr(0, colon), options.share_request)) return false;
  if (colon == std::string::npos) return true;
  return parse_percentage(std::string_view(text).substr(colon + 1), options.share_limit) &&
         options.share_limit >= options.share_request;
}

// Without Slurm, CUDA_VISIBLE_DEVICES is the user's own way to choose GPUs.
bool user_chose() { return std::getenv("CUDA_VISIBLE_DEVICES") != nullptr; }

// Leaves `number` unchanged if the option is missing. Returns an empty string or an error message.
template <class Integer>
std::string read_number(const char* option, const std::optional<std::string>& text, Integer least,
                        Integer most, Integer& number) {
  if (!text) return {};
  const auto read = parse_number<Integer>(*text);
  if (!read || *read < least || *read > most)
    return std::string(option) + ": '" + *text + "' is not a number from " + std::to_string(least) + " to " +
           std::to_string(most);
  number = *read;
  return {};
}

// Returns an empty string or an error message.
std::string read_options(const Arguments& arguments, JobOptions& options) {
  for (const std::string& error :
       {read_number("--priority", arguments.priority, -kHighestPriority, kHighestPriority, options.priority),
        read_number("--gpus", arguments.gpus, 1u, GpuList::kMost, options.gpus),
        read_number("--units", arguments.units, 1u, JobOptions::kMostUnits, options.units)})
    if (!error.empty()) return error;
  if (arguments.gpus && user_chose()) return "--gpus: CUDA_VISIBLE_DEVICES names the GPUs already";
  if (arguments.memory) {
    auto size = parse_size(*arguments.memory);
    if (!size || *size == Bytes{})
      return "--memory: '" + *arguments.memory + "' is not a size (such as 24GiB)";
    options.memory = *size;
  }
  if (arguments.deadline) {
    const auto deadline = parse_time(*arguments.deadline);
    if (!deadline || *deadline <= Nanoseconds{})
      return "--deadline: '" + *arguments.deadline + "' is not a time (such as 33ms)";
    options.deadline = *deadline;
  }
  if (arguments.deadline_from_stderr && !arguments.deadline) return "--deadline-from-stderr needs --deadline";
  if (arguments.share && !parse_share(*arguments.share, options))
    return "--share: '" + *arguments.share + "' is not a share (REQUEST[:LIMIT], in percent)";
  if (arguments.backend) {
    options.backend_given = 1;
    if (!parse_backend(*arguments.backend, options.backend))
      return "--backend: '" + *arguments.backend + "' is not one of swap, managed, native";
  }
  return {};
}

// Sets the user of the tenant, if the caller vouches for it. Returns an empty string, or an error message.
std::string read_voucher(const Arguments& arguments, RunRequest& request) {
  if (!arguments.user && !arguments.units) return {};
  request.vouched = 1;
  request.uid = getuid();
  if (!arguments.user) return {};
  const passwd* user = getpwnam(arguments.user->c_str());
  if (user == nullptr) return "--user: there is no user '" + *arguments.user + "'";
  request.uid = user->pw_uid;
  return {};
}

// The user's environment overrides the site's timeout for an absent arbiter, as it does in the library.
void read_environment(Settings& settings) {
  const char* text = std::getenv(environment::kArbiterTimeout);
  if (text == nullptr || *text == '\0') return;
  const auto milliseconds = parse_number<unsigned long>(text);
  if (!milliseconds || *milliseconds > 86'400'000)
    complain(std::string(environment::kArbiterTimeout) + ": '" + text +
             "' is not a number of milliseconds, at most a day; ignored");
  else
    settings.arbiter_timeout = std::chrono::milliseconds(*milliseconds);
}

// Connects and asks, for at most `patience`, since the arbiter may be starting. Returns an empty string, or
// the reason why there is no tenant.
std::string ask_for_tenant(const Settings& settings, RunRequest request, Channel& channel, RunReply& reply) {
  Message message;
  const char* devices = std::getenv(environment::kDevices);  // set if run within a Slurm step
  request.chosen = user_chose();
  request.devices = parse_devices(devices == nullptr ? "" : devices);
  const Patience patience{.connect = settings.arbiter_timeout,
                          .answer = answer_patience(settings.arbiter_timeout)};
  if (int error = ask(settings.socket.c_str(), Message::of(request), patience, channel, message))
    return (channel ? "the arbiter at " + settings.socket + " does not answer: "
                    : "no arbiter at " + settings.socket + ": ") +
           std::strerror(error);
  if (message.type == MessageType::refused) {
    auto refused = message.as<Refused>();
    return std::string("the arbiter refused: ") +
           std::string(refused.reason, strnlen(refused.reason, sizeof refused.reason));
  }
  if (message.type != MessageType::run_reply)
    return "the arbiter at " + settings.socket + " sent a reply that is not understood";
  reply = message.as<RunReply>();
  return {};
}

std::string hex(const RunToken& token) {
  std::string text;
  for (unsigned byte : token.bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

void set_environment(const Settings& settings, const RunReply& reply, const std::string& library) {
  auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(settings.arbiter_timeout);
  setenv(environment::kSocket, settings.socket.c_str(), 1);
  setenv(environment::kToken, hex(reply.token).c_str(), 1);
  setenv(environment::kRun, std::to_string(reply.tenant.value).c_str(), 1);
  setenv(environment::kArbiterTimeout, std::to_string(timeout.count()).c_str(), 1);
  setenv(environment::kOnNoArbiter, settings.on_no_arbiter == OnNoArbiter::fail ? "fail" : "plain", 1);
  const char* preloads = std::getenv("LD_PRELOAD");
  setenv("LD_PRELOAD", with_preload(preloads == nullptr ? "" : preloads, library).c_str(), 1);
  if (reply.threads != 0) {
    setenv("CUDA_MPS_PIPE_DIRECTORY", mps_folder(settings.socket).c_str(), 1);
    setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", std::to_string(reply.threads).c_str(), 1);
  }
  if (reply.gpus.count == 0) return;
  const std::string gpus = format_gpus(reply.gpus);
  setenv("CUDA_VISIBLE_DEVICES", gpus.c_str(), 1);
  setenv(environment::kGpus, gpus.c_str(), 1);
}

int execute(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  int error = errno;
  complain(command[0] + ": " + std::strerror(error));
  return error == ENOENT ? 127 : 126;  // as in a shell
}

int run(const Arguments& arguments) {
  Settings settings;
  if (!load_settings(arguments.config, settings)) return 2;
  RunRequest request;
  for (const std::string& error :
       {read_options(arguments, request.options), read_voucher(arguments, request)})
    if (!error.empty()) {
      complain(error);
      return 2;
    }
  read_environment(settings);
  for (const char* name : kDeadlineVariables) unsetenv(name);  // the variables of an outer run do not apply
  std::string library = find_sibling("../lib/sharedgpu/libsharedgpu.so", "../interposer/libsharedgpu.so");
  Channel channel;
  RunReply reply;
  std::string trouble = library.empty() ? "libsharedgpu.so is not where it was installed"
                                        : ask_for_tenant(settings, request, channel, reply);
  if (trouble.empty()) {
    // The descriptor is not 3: a script may open a file of its own as descriptor 3, which would close the
    // connection.
    channel.move_out_of_the_way();
    fcntl(channel.fd(), F_SETFD, 0);
    if (std::string problem = shortfall(reply.gpus, request.options.gpus); !problem.empty())
      complain("--gpus " + *arguments.gpus + ": " + problem);
    set_environment(settings, reply, library);
    if (request.options.deadline > Nanoseconds{}) {
      const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
      if (int error = make_deadline_pipe(request.options.deadline, set))
        complain(std::string("--deadline: cannot create a pipe: ") + std::strerror(error));
    }
  } else if (settings.on_no_arbiter == OnNoArbiter::fail || request.vouched != 0) {
    complain(trouble);
    return 1;
  } else {
    complain(trouble + "; running without sharing");
  }
  if (!arguments.deadline_from_stderr) return execute(arguments.command);
  return run_with_stderr_read([&arguments] { return execute(arguments.command); });
}

// The number of words before the user's command, including the command's name.
int own_words(const CLI::App& subcommand, int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") return std::min(i + 2, argc);
    if (!word.starts_with('-')) return i + 1;
    const std::size_t end = word.find('=');
    const CLI::Option* option = subcommand.get_option_no_throw(std::string(word.substr(0, end)));
    if (option != nullptr && option->get_expected_max() > 0 && end == word.npos) ++i;
  }
  return argc;
}

}  // namespace

// CLI11 parses "[a,b]" as a list of two words, so it gets only the name of the user's command.
int add_run(CLI::App& app, int argc, char** argv, int& status) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("run", "Run a command as a tenant of its own");
  command->add_option("--config", arguments->config, "Settings")->type_name("FILE");
  command->add_option("--memory", arguments->memory, "Limit on the device memory that it may allocate")
      ->type_name("SIZE");
  command->add_option("--share", arguments->share, "Percent of GPU time")->type_name("REQUEST[:LIMIT]");
  command->add_option("--priority", arguments->priority, "Higher goes first")->type_name("N");
  command
      ->add_option("--deadline", arguments->deadline,
                   "Time limit for each piece of its work; the command reports which ones it met")
      ->type_name("TIME");
  command->add_flag("--deadline-from-stderr", arguments->deadline_from_stderr,
                    "The command reports deadlines on stderr, by lines that say pass or missed");
  command->add_option("--backend", arguments->backend, "swap, managed or native")->type_name("BACKEND");
  command->add_option("--gpus", arguments->gpus, "GPUs that it spans (default 1)")->type_name("N");
  command->add_option("--user", arguments->user, "For root: the user that the tenant belongs to")
      ->type_name("NAME");
  command->add_option("--units", arguments->units, "For root: the units of the tenant (default 1)")
      ->type_name("N");
  command->add_option("command", arguments->command, "The command and its arguments")
      ->type_name("COMMAND...")
      ->required();
  command->prefix_command(false);
  command->positionals_at_end();
  const int own = argc > 1 && command->check_name(argv[1]) ? own_words(*command, argc, argv) : argc;
  command->callback([arguments, own, argc, argv, &status] {
    arguments->command.assign(argv + own - 1, argv + argc);
    status = run(*arguments);
  });
  return own;
}

}  // namespace sharedgpu::cli
