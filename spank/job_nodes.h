// SPDX-License-Identifier: Apache-2.0
// Reads the nodes of a job from the environment of its steps. Pure; any thread.
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

// Returns the first node and the number of nodes in `list`, which has Slurm's form: "n1", "n[01,03-04],m7",
// "rack[0-1]node[0-3]". Returns nullopt if `list` is not in this form, has more nodes than a cluster can
// have, or has a name that is too long for RegisterGang.
std::optional<JobNodes> parse_nodes(std::string_view list);

// A function that returns the value of a variable of the step's environment; empty if unset.
using Variables = std::function<std::string(const char* name)>;

// Returns the first node and the number of nodes of `job`, the same for all of its steps, including steps on
// a subset of the nodes. Returns nullopt if the environment does not list the nodes, or if parse_nodes() does
// not accept the list.
//
// The user can forge the list for steps that srun starts. So the arbiter asks Slurm for the nodes if the
// first node of the list does not answer, or if fewer nodes report than the list has.
std::optional<JobNodes> job_nodes(std::uint32_t job, const Variables& variables);

}  // namespace sharedgpu
