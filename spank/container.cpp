// SPDX-License-Identifier: Apache-2.0
#include "spank/container.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "protocol/environment.h"
#include "protocol/preload.h"
#include "slurm_shared/siblings.h"
#include "spank/step_environment.h"

namespace sharedgpu {
namespace {

constexpr char kPreload[] = "LD_PRELOAD";

void remove_preload(spank_t spank) {
  const std::string preload = without_preload(get_variable(spank, kPreload), interposer_path());
  if (preload.empty())
    spank_unsetenv(spank, kPreload);
  else
    spank_setenv(spank, kPreload, preload.c_str(), 1);
}

enum class Runtime { absent, unprepared, prepared };

// Reads oci.conf, which is in the folder of slurm.conf. If this node has no oci.conf, Slurm ignores the
// option --container. The runtime is prepared if a command of oci.conf calls `sharedgpu oci`.
Runtime read_oci_conf() {
  const char* conf = std::getenv("SLURM_CONF");
  const std::string named = conf == nullptr ? "" : conf;
  for (const std::string& folder :
       {named.substr(0, named.rfind('/') + 1), std::string("/etc/slurm/"), std::string("/run/slurm/conf/")}) {
    std::ifstream file(folder + "oci.conf");
    if (folder.empty() || !file) continue;
    for (std::string line; std::getline(file, line);)
      if (!line.starts_with('#') && line.find("sharedgpu oci") != line.npos) return Runtime::prepared;
    return Runtime::unprepared;
  }
  return Runtime::absent;
}

// Passes the step's variables for containers to the container runtime. The runtime's commands (oci.conf) get
// the environment of slurmstepd, and not that of the step. So this function sets the variables in the
// environment of this process.
void tell_runtime(spank_t spank) {
  for (const char* name : environment::kContainerVariables)
    if (const std::string value = get_variable(spank, name); !value.empty()) setenv(name, value.c_str(), 1);
}

}  // namespace

std::string prepare_container(spank_t spank) {
  if (!get_variable(spank, "SLURM_CONTAINER").empty()) {
    const Runtime runtime = read_oci_conf();
    if (runtime == Runtime::absent) return {};
    remove_preload(spank);
    tell_runtime(spank);
    if (runtime == Runtime::prepared) return {};
    return "sharedgpu: this container runs without GPU sharing: oci.conf does not call 'sharedgpu oci'\n";
  }
  const std::string library = interposer_path();
  if (!has_preload(get_variable(spank, kPreload), library) || access(library.c_str(), R_OK) == 0) return {};
  const std::string reason = std::strerror(errno);
  remove_preload(spank);
  return "sharedgpu: this container runs without GPU sharing: " + library + ": " + reason + "\n";
}

}  // namespace sharedgpu
