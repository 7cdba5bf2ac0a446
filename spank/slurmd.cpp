// SPDX-License-Identifier: Apache-2.0
// This code runs in slurmd, as root, at startup, and starts the arbiter. So the arbiter runs in slurmd's
// cgroup and not in a job's cgroup, and outlives a restart of slurmd.
#include <unistd.h>

#include "slurm_shared/offer.h"
#include "slurm_shared/siblings.h"
#include "spank/comment_marks.h"
#include "spank/plugin.h"
#include "spank/supervisor.h"

namespace sharedgpu {
namespace {

// Warns if the units in slurm.conf do not match the node's GPUs, because Slurm itself cannot know how many
// units a GPU has.
void compare_units(const SharedGpuOffer& offer, const Configuration& configuration) {
  const std::uint32_t each = configuration.settings.units_per_gpu;
  if (offer.gpus == 0 || offer.units == offer.gpus * each) return;
  std::string name = std::string("sharedgpu") + (*offer.type == '\0' ? "" : ":") + offer.type;
  const std::string& file = configuration.arguments.config;
  log_error("slurm.conf gives this node Gres=" + name + ":" + std::to_string(offer.units) +
            ", but UnitsPerGpu=" + std::to_string(each) + " in " +
            (file.empty() ? kDefaultConfigFile : file) + " times its GPUs (" + std::to_string(offer.gpus) +
            ") makes " + name + ":" + std::to_string(offer.gpus * each) +
            "; sharedgpu computes shares with the latter");
}

void compare_all_units(const Configuration& configuration) {
  auto read_offer =
      reinterpret_cast<SharedGpuOfferFunction*>(sibling_function("gres_sharedgpu.so", "sharedgpu_offer"));
  if (read_offer == nullptr) return;
  SharedGpuOffer offer = {};
  for (std::size_t i = 0; read_offer(i, &offer); ++i) compare_units(offer, configuration);
}

}  // namespace

void slurmd_init(int count, char** arguments) {
  Configuration configuration = configure(count, arguments);
  // Does not start the arbiter, since it would refuse this configuration, too, and since its socket is
  // unknown.
  if (!configuration.good) {
    log_error("configuration error: not starting the arbiter; jobs use the GPU without sharing");
    return;
  }
  compare_all_units(configuration);
  ensure_arbiter(configuration, with_node_name(own_environment(), command_line_of(getpid())));
  if (has_marks(configuration.settings)) start_comment(configuration, 0, own_environment());
}

}  // namespace sharedgpu
