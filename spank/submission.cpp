// SPDX-License-Identifier: Apache-2.0
// This code runs in srun, sbatch and salloc, as the user, after these commands have parsed their options. It
// tells the user which options have no effect. In srun, it also stores whether srun creates the job itself.
// In a heterogeneous job Slurm calls this code for each component.
#include <dlfcn.h>
#include <slurm/slurm.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/option_effects.h"
#include "protocol/environment.h"
#include "spank/plugin.h"
#include "spank/summary.h"

namespace sharedgpu {
namespace {

// Reads the options of Slurm that the user gave to srun, sbatch or salloc. Each command has a variable `opt`,
// and Slurm's library has functions that read `opt` for cli_filter plugins. These symbols are not part of
// SPANK. If Slurm lacks the variable or one of the functions, the options are unknown.
class SlurmOptions {
 public:
  bool are_known() const {
    return options_ != nullptr && get_ != nullptr && is_set_ != nullptr && free_ != nullptr;
  }
  bool is_set(const char* name) const { return is_set_(options_, name); }
  std::string value(const char* name) const {
    void* value = get_(options_, name);
    std::string text = value == nullptr ? "" : static_cast<const char*>(value);
    free_(&value);
    return text;
  }
  // The value of an option that is a list of names, such as --partition; nullopt if the list is empty or has
  // several names.
  std::optional<std::string> name(const char* option) const {
    std::string name = value(option);
    return name.empty() || name.find(',') != name.npos ? std::nullopt : std::optional(name);
  }

 private:
  template <class Function>
  static Function find(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  }

  void* options_ = dlsym(RTLD_DEFAULT, "opt");
  char* (*get_)(void* options, const char* name) = find<decltype(get_)>("slurm_option_get");
  bool (*is_set_)(void* options, const char* name) = find<decltype(is_set_)>("slurm_option_isset");
  void (*free_)(void** block) = find<decltype(free_)>("slurm_xfree");
};

// Returns whether the job or step requests units; nullopt for a step that states no GRES, because such a step
// gets the units of its job.
std::optional<bool> requests_units(const SlurmOptions& options, bool is_step) {
  const std::string gres = options.value("gres");
  const std::string per_task = options.value("tres-per-task");
  if ((gres + per_task).find("sharedgpu") != std::string::npos) return true;
  return is_step && gres.empty() ? std::nullopt : std::optional(false);
}

// Returns true in a salloc that runs its shell on this host, and not as a step of the job. Only salloc has
// the variable `saopt`. Slurm's library stores the contents of slurm.conf in the variable `slurm_conf`.
bool is_salloc_without_step() {
  const auto* conf = static_cast<const slurm_conf_t*>(dlsym(RTLD_DEFAULT, "slurm_conf"));
  if (conf == nullptr || dlsym(RTLD_DEFAULT, "saopt") == nullptr) return false;
  return conf->launch_params == nullptr ||
         std::strstr(conf->launch_params, "use_interactive_step") == nullptr;
}

// In a heterogeneous job, the options of one component stay set for the next components. So if an earlier
// component has units, a component without units may have options that were meant for the earlier component.
// This function then returns nullopt.
std::optional<bool> unless_earlier(std::optional<bool> has_units) {
  static bool earlier = false;
  if (earlier && has_units == false) return std::nullopt;
  earlier = earlier || has_units == true;
  return has_units;
}

// Removes the options that a step has inherited from its job through the environment. The user was told about
// these options when the job was submitted.
GivenOptions without_inherited(GivenOptions given) {
  for (std::size_t i = 0; i < kOptionCount; ++i) {
    const char* inherited =
        std::getenv((environment::kInheritedOption + std::string(kOptions[i].name)).c_str());
    if (inherited != nullptr && given.texts[i] == inherited) given.texts[i].clear();
  }
  return given;
}

std::vector<std::string> missing_effects(const SlurmOptions& options, const Settings* settings) {
  if (!options.are_known()) return sharedgpu::missing_effects(given_options(), {}, settings);
  if (options.is_set("quiet")) return {};
  const bool is_step = options.is_set("jobid");
  const Submission submission = {.is_run = false,
                                 .is_later_step = is_step && std::getenv(environment::kUnits) != nullptr,
                                 .lacks_last_step = is_salloc_without_step(),
                                 .has_units = unless_earlier(requests_units(options, is_step)),
                                 .partition = options.name("partition"),
                                 .qos = options.name("qos")};
  return sharedgpu::missing_effects(is_step ? without_inherited(given_options()) : given_options(),
                                    submission, settings);
}

}  // namespace

void submission_init_post_opt(spank_t /*spank*/, int count, char** arguments) {
  const SlurmOptions options;
  if (spank_context() == S_CTX_LOCAL) note_job_of_srun(options.are_known() && !options.is_set("jobid"));
  Arguments own;
  parse_arguments(count, arguments, own);
  const std::optional<Settings> settings = settings_in_file(own.config);
  static std::set<std::string> told;
  for (const std::string& line : missing_effects(options, settings ? &*settings : nullptr))
    if (told.insert(line).second) slurm_info("sharedgpu: %s", line.c_str());
}

}  // namespace sharedgpu
