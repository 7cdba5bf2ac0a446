// SPDX-License-Identifier: Apache-2.0
// sharedgpu run -- COMMAND...: runs a command as a tenant of its own.
//
// The command replaces this process, so it gets all signals, and its exit status is the exit status of this
// process. With --deadline-from-stderr or --summary=yes the command is a child instead. The command and the
// processes that it starts inherit the connection to the arbiter: the tenant exists until the last of these
// processes ends.
#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "arbiter/cli/commands.h"
#include "arbiter/cli/deadlines.h"
#include "arbiter/cli/summary.h"
#include "config/option_effects.h"
#include "protocol/ask.h"
#include "protocol/deadline_pipe.h"
#include "protocol/environment.h"
#include "protocol/gpu_names.h"
#include "protocol/preload.h"
#include "protocol/run_token.h"
#include "protocol/split.h"

namespace sharedgpu::cli {
namespace {

struct RunArguments {
  std::string config;
  std::array<std::optional<std::string>, kOptionCount> options;
  bool deadline_from_stderr = false;
  std::optional<std::string> user;
  std::optional<std::string> units;
  std::optional<std::string> host_memory;
  bool join = false;
  std::vector<std::string> command;
};

// Without Slurm, CUDA_VISIBLE_DEVICES is the user's own way to choose GPUs.
bool user_chose() { return std::getenv("CUDA_VISIBLE_DEVICES") != nullptr; }

// Returns an empty string or an error message.
std::string read_options(const RunArguments& arguments, GivenOptions& given) {
  for (std::size_t i = 0; i < kOptionCount; ++i) {
    const std::optional<std::string>& text = arguments.options[i];
    if (!text) continue;
    if (std::string error = set_option(given, i, *text); !error.empty()) return error;
  }
  if (given.job.gpus != 0 && user_chose()) return "--gpus: CUDA_VISIBLE_DEVICES names the GPUs already";
  if (arguments.deadline_from_stderr && given.job.deadline == Nanoseconds{})
    return "--deadline-from-stderr needs --deadline";
  if (arguments.deadline_from_stderr && given.summary == true)
    return "--summary: not possible together with --deadline-from-stderr";
  if (!arguments.units) return {};
  const auto units = parse_number<std::uint32_t>(*arguments.units);
  if (!units || *units < 1 || *units > JobOptions::kMostUnits)
    return "--units: '" + *arguments.units + "' is not a number from 1 to " +
           std::to_string(JobOptions::kMostUnits);
  given.job.units = *units;
  return {};
}

// Reports which options have no effect under the site's settings. Needs a sharedgpu.conf on this host.
void tell_missing_effects(const RunArguments& arguments, const GivenOptions& given) {
  const std::optional<Settings> settings = settings_in_file(arguments.config);
  const Submission submission = {.is_run = true,
                                 .is_later_step = false,
                                 .lacks_last_step = false,
                                 .has_units = true,
                                 .partition = "",
                                 .qos = ""};
  for (const std::string& line : missing_effects(given, submission, settings ? &*settings : nullptr))
    complain(line);
}

// Sets the user and the host memory of the tenant if the caller states --user, --units or --host-memory,
// which only administrators may do. Returns an empty string, or an error message.
std::string read_voucher(const RunArguments& arguments, RunRequest& request) {
  if (!arguments.user && !arguments.units && !arguments.host_memory) return {};
  request.vouched = 1;
  request.uid = getuid();
  if (arguments.host_memory) {
    const auto size = parse_size(*arguments.host_memory);
    if (!size || *size == Bytes{})
      return "--host-memory: '" + *arguments.host_memory + "' is not a size with a unit (such as 24GiB)";
    request.host_memory = *size;
  }
  if (!arguments.user) return {};
  const passwd* user = getpwnam(arguments.user->c_str());
  if (user == nullptr) return "--user: there is no user '" + *arguments.user + "'";
  request.uid = user->pw_uid;
  return {};
}

// SHAREDGPU_ARBITER_TIMEOUT overrides ArbiterTimeout= of sharedgpu.conf, in this command as in the
// interposer.
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

// Asks the arbiter for a tenant. Waits for the arbiter for at most `arbiter_timeout`, since the arbiter may
// be starting. Returns an empty string, or the reason why there is no tenant.
std::string ask_for_tenant(const Settings& settings, RunRequest request, Channel& channel, RunReply& reply) {
  Message message;
  const char* devices = std::getenv(environment::kDevices);  // set if this command runs in a Slurm step
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

// Asks the arbiter to move this process into the cgroup of its run. The command runs even if this fails. When
// the command later opens a session, the arbiter tries the move again.
void join_group(const Settings& settings) {
  const char* text = std::getenv(environment::kToken);
  RunToken token;
  if (text == nullptr || !parse_token(text, token))
    return complain(std::string("--join: ") + environment::kToken + " names no run");
  const Patience patience{.connect = settings.arbiter_timeout,
                          .answer = answer_patience(settings.arbiter_timeout)};
  Channel channel;
  Message message;
  if (int error =
          ask(settings.socket.c_str(), Message::of(JoinRun{.token = token}), patience, channel, message))
    complain("--join: no answer of an arbiter at " + settings.socket + ": " + std::strerror(error));
}

void set_environment(const Settings& settings, const RunReply& reply, const std::string& library) {
  auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(settings.arbiter_timeout);
  setenv(environment::kSocket, settings.socket.c_str(), 1);
  setenv(environment::kToken, format_token(reply.token).c_str(), 1);
  setenv(environment::kRun, std::to_string(reply.tenant.value).c_str(), 1);
  if (reply.confined != 0)
    setenv(environment::kGroup, "1", 1);
  else
    unsetenv(environment::kGroup);
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
  return error == ENOENT ? 127 : 126;  // the exit statuses that shells use
}

int run(const RunArguments& arguments) {
  Settings settings;
  // With --join (a task of a batch job), the command runs even if the settings are wrong or the user cannot
  // read them.
  if (!load_settings(arguments.config, settings) && !arguments.join) return 2;
  GivenOptions given{.prefix = kRunPrefix, .job = {}, .texts = {}};
  RunRequest request;
  for (const std::string& error : {read_options(arguments, given), read_voucher(arguments, request)})
    if (!error.empty()) {
      complain(error);
      return 2;
    }
  request.options = given.job;
  tell_missing_effects(arguments, given);
  read_environment(settings);
  if (arguments.join) {
    join_group(settings);
    return execute(arguments.command);
  }
  for (const char* name : kDeadlineVariables) unsetenv(name);  // an outer run may have set them
  std::string library = find_sibling("../lib/sharedgpu/libsharedgpu.so", "../interposer/libsharedgpu.so");
  Channel channel;
  RunReply reply;
  std::string trouble = library.empty() ? "libsharedgpu.so is not where it was installed"
                                        : ask_for_tenant(settings, request, channel, reply);
  if (trouble.empty()) {
    // Moves the connection to a high descriptor, since scripts often open files as descriptor 3 (`exec
    // 3>file`), which would close the connection.
    channel.move_out_of_the_way();
    fcntl(channel.fd(), F_SETFD, 0);
    if (std::string problem = shortfall(reply.gpus, request.options.gpus); !problem.empty())
      complain("--gpus " + std::to_string(request.options.gpus) + ": " + problem);
    if (reply.units != 0 && reply.units < request.options.units)
      complain("--units " + std::to_string(request.options.units) + ": this node has only " +
               std::to_string(reply.units) + " units; the run gets " + std::to_string(reply.units));
    if (request.host_memory != Bytes{} && reply.confined == 0)
      complain("--host-memory: no control group limits the host memory; the arbiter's log says why");
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
  const auto command = [&arguments] { return execute(arguments.command); };
  if (arguments.deadline_from_stderr) return run_with_stderr_read(command);
  if (!given.summary.value_or(false) || !trouble.empty()) return command();
  return run_with_summary(command, settings.socket, reply.tenant);
}

// Returns the number of words up to and including the name of the user's command.
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

// CLI11 would parse "[a,b]" as a list of two words, so the arguments of the user's command are not passed to
// CLI11.
int add_run(CLI::App& app, int argc, char** argv, int& status) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* command = app.add_subcommand("run", "Run a command as a tenant of its own");
  command->add_option("--config", arguments->config, "Settings")->type_name("FILE");
  for (std::size_t i = 0; i < kOptionCount; ++i)
    command
        ->add_option(std::string(kRunPrefix) + kOptions[i].name, arguments->options[i], kOptions[i].run_help)
        ->type_name(kOptions[i].value);
  command->add_flag("--deadline-from-stderr", arguments->deadline_from_stderr,
                    "The command reports deadlines on stderr, by lines that say pass or missed");
  command->add_option("--user", arguments->user, "For administrators: the user that the tenant belongs to")
      ->type_name("NAME");
  command->add_option("--units", arguments->units, "For administrators: the units of the tenant (default 1)")
      ->type_name("N");
  command
      ->add_option("--host-memory", arguments->host_memory,
                   "For administrators: limit on the host memory of the command, beside that of its units")
      ->type_name("SIZE");
  command->add_flag("--join", arguments->join,
                    "Enter the control group of the run that this process belongs to; no tenant is made");
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
