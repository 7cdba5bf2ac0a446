// SPDX-License-Identifier: Apache-2.0
#include "spank/plugin.h"

#include "protocol/ask.h"
#include "slurm_shared/siblings.h"
#include "spank/supervisor.h"

namespace sharedgpu {
namespace {

// srun, sbatch and salloc call this function for options of their command lines. slurmstepd calls it with the
// values that these commands have sent.
int take_option(int index, const char* value, int remote) noexcept try {
  std::string problem =
      set_option(given_options(), static_cast<std::size_t>(index), value == nullptr ? "" : value);
  if (problem.empty()) return 0;
  log_error(problem);
  // srun refuses invalid values, so an invalid value in slurmstepd is forged. The job then runs without this
  // value.
  return remote != 0 ? 0 : -1;
} catch (...) {
  return 0;
}

}  // namespace

GivenOptions& given_options() {
  static GivenOptions options;
  return options;
}

void register_options(spank_t spank) {
  for (std::size_t i = 0; i < kOptions.size(); ++i) {
    std::string name = std::string(kSlurmPrefix + 2) + kOptions[i].name;  // Slurm adds the dashes
    // Slurm copies the strings, but its types lack const.
    spank_option option = {.name = name.data(),
                           .arginfo = const_cast<char*>(kOptions[i].value),
                           .usage = const_cast<char*>(kOptions[i].help),
                           .has_arg = 1,
                           .val = static_cast<int>(i),
                           .cb = take_option};
    if (spank_err_t error = spank_option_register(spank, &option); error != ESPANK_SUCCESS)
      log_error("--" + name + " cannot be offered: " + spank_strerror(error));
  }
}

Configuration configure(int count, char** arguments) {
  Configuration result;
  std::string bad_argument = parse_arguments(count, arguments, result.arguments);
  std::string bad_setting = result.arguments.config.empty()
                                ? read_default_settings(result.settings)
                                : read_settings(result.arguments.config, result.settings);
  if (!bad_argument.empty()) log_error(bad_argument);
  if (!bad_setting.empty()) log_error(bad_setting);
  result.good = bad_argument.empty() && bad_setting.empty();
  return result;
}

void ensure_arbiter(const Configuration& configuration, const std::vector<std::string>& environment) {
  if (is_listening(configuration.settings.socket.c_str())) return;
  std::string problem = start_supervisor(command_path(), configuration.arguments.config, environment);
  if (problem.empty())
    slurm_info("sharedgpu: started the arbiter at %s", configuration.settings.socket.c_str());
  else
    log_error("the arbiter cannot be started: " + problem);
}

void log_error(const std::string& message) { slurm_error("sharedgpu: %s", message.c_str()); }

}  // namespace sharedgpu
