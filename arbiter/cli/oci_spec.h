// SPDX-License-Identifier: Apache-2.0
// Edits the configuration of an OCI container (config.json) so that its processes can use the library and the
// arbiter's socket. Pure.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace sharedgpu::cli {

// The library, folders and variables that a container of the job needs for GPU sharing. If `library` is
// empty, the container cannot share GPUs: the calling process is in no job with sharedgpu, no library was
// found, or something else prevents the sharing. Then `obstacle` has the reason, unless the reason was
// printed already.
struct JobReach {
  std::string obstacle;
  std::string library;               // path of libsharedgpu.so on the host
  std::vector<std::string> folders;  // to be mounted in the container at the same paths
  std::vector<std::pair<std::string, std::string>> variables;  // the job's variables that the container's
                                                               // processes need
};

// Returns the value of a variable of the environment; null if it is unset.
using Lookup = std::function<const char*(const char* name)>;
JobReach read_reach(const Lookup& lookup, const std::string& library);

// If both the job and the container's configuration set a variable, decides which value the variable gets.
// With `wins`, the configuration's value stays, because the user has chosen it. If the user has chosen an
// empty LD_PRELOAD, the container stays unchanged. With `yields`, the job's value replaces the
// configuration's value, which is inherited from a batch step.
enum class Stated { wins, yields };

// Adds the job's folders and variables to `spec`, and the library to its LD_PRELOAD. Mounts of the
// configuration stay. If `job.library` is empty, removes the library from an inherited LD_PRELOAD instead,
// since the loader would complain about it at each command. Returns an empty string, or the reason why `spec`
// is left unchanged.
std::string add_job(nlohmann::json& spec, const JobReach& job, Stated stated);

}  // namespace sharedgpu::cli
