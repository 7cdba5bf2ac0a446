// SPDX-License-Identifier: Apache-2.0
// Which nodes a job has, as its steps' environment tells it. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace sharedgpu {

struct JobNodes {
  std::string first;
  std::uint32_t count = 0;
  bool operator==(const JobNodes&) const = default;
};

// The nodes of a list as Slurm writes it: "n1", "n[01,03-04],m7", "rack[0-1]node[0-3]". Nothing where it is
// none, has more nodes than a cluster, or a name that is longer than RegisterGang holds.
std::optional<JobNodes> parse_nodes(std::string_view list);

// The value of a variable of the step's environment; empty where there is none.
using Variables = std::function<std::string(const char* name)>;

// The nodes of `job`, in the same order for each of its steps, also for those on some of the nodes. Nothing
// where the environment does not tell.
//
// It is the user's word for what srun starts. A forged list can only take the user's own job out of its gang.
std::optional<JobNodes> job_nodes(std::uint32_t job, const Variables& variables);

}  // namespace sharedgpu
