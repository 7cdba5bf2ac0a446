// SPDX-License-Identifier: GPL-2.0-or-later
#include "job_submit/configuration.h"

#include <unistd.h>

#include "config/settings.h"
#include "slurm_shared/abi/controller.h"

namespace sharedgpu::job_submit {
namespace {

// Returns the path of sharedgpu.conf in the folder of slurm.conf, or else in its default place. Returns an
// empty text if neither file exists. The defaults then apply.
std::string file_beside(const char* slurm_conf) {
  std::string path = slurm_conf == nullptr ? "" : slurm_conf;
  path.erase(path.find_last_of('/') + 1);
  path += "sharedgpu.conf";
  for (const std::string& each : {path, std::string(kDefaultConfigFile)})
    if (access(each.c_str(), F_OK) == 0) return each;
  return {};
}

}  // namespace

void Configuration::read(const std::string& path) {
  Settings settings;
  const std::string error = path.empty() ? std::string() : read_settings(path, settings);
  if (!error.empty()) {
    slurm_error(
        "job_submit/sharedgpu: %s; %s", error.c_str(),
        unit_memory_ ? "the values read before stay in force" : "jobs get no host memory for their units");
    return;
  }
  unit_memory_.reset();
  UnitMemory unit_memory(settings.swap_per_unit, settings.gpu_memory, settings.units_per_gpu);
  const char* const file = path.empty() ? kDefaultConfigFile : path.c_str();
  if (settings.swap_per_unit.entries.empty())
    slurm_info("job_submit/sharedgpu: jobs get no host memory for their units: %s does not state SwapPerUnit",
               file);
  else if (const std::string problem = unit_memory.problem(); !problem.empty())
    slurm_error("job_submit/sharedgpu: jobs get no host memory for their units: %s: %s", file,
                problem.c_str());
  else
    unit_memory_ = std::move(unit_memory);
}

std::optional<UnitMemory> Configuration::unit_memory(const char* slurm_conf, std::time_t slurm_read_at) {
  const std::lock_guard lock(mutex_);
  if (read_at_ != slurm_read_at) {
    read_at_ = slurm_read_at;
    read(file_beside(slurm_conf));
  }
  return unit_memory_;
}

}  // namespace sharedgpu::job_submit
