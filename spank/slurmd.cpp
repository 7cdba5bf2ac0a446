// SPDX-License-Identifier: Apache-2.0
// slurmd, as root, as it starts: the arbiter is started from here, so that it lives in slurmd's cgroup and
// not in a job's, and outlives a restart of slurmd.
#include <dirent.h>
#include <cstring>

#include "spank/plugin.h"
#include "spank/siblings.h"
#include "spank/supervisor.h"

namespace sharedgpu {
namespace {

// The NVIDIA devices of this node; 0 where none can be seen, as with a driver not yet loaded or a simulated
// GPU.
std::uint64_t count_gpus() {
  DIR* devices = opendir("/dev");
  if (devices == nullptr) return 0;
  std::uint64_t count = 0;
  constexpr std::size_t kPrefix = 6;
  while (const dirent* entry = readdir(devices)) {
    const char* name = entry->d_name;
    if (std::strncmp(name, "nvidia", kPrefix) != 0 || name[kPrefix] == '\0') continue;
    if (name[kPrefix + std::strspn(name + kPrefix, "0123456789")] == '\0') ++count;
  }
  closedir(devices);
  return count;
}

// Slurm hands out as many units as its configuration says; only we know how many the GPUs make.
void compare_units(std::uint32_t units_per_gpu) {
  auto advertised = reinterpret_cast<std::uint64_t (*)()>(
      sibling_function("gres_sharedgpu.so", "sharedgpu_units_advertised"));
  std::uint64_t gpus = count_gpus();
  if (advertised == nullptr || gpus == 0 || advertised() == gpus * units_per_gpu) return;
  log_error("gres.conf gives this node " + std::to_string(advertised()) + " units, but " +
            std::to_string(gpus) + " GPUs with UnitsPerGpu=" + std::to_string(units_per_gpu) + " make " +
            std::to_string(gpus * units_per_gpu) + "; shares are counted with the latter");
}

}  // namespace

void slurmd_init(int count, char** arguments) {
  Configuration configuration = configure(count, arguments);
  // The arbiter would refuse it too, and it cannot know the socket.
  if (!configuration.good) {
    log_error("no arbiter is started until this is corrected; jobs run on the plain GPU");
    return;
  }
  compare_units(configuration.settings.units_per_gpu);
  ensure_arbiter(configuration, own_environment());
}

}  // namespace sharedgpu
