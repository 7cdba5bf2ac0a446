// SPDX-License-Identifier: Apache-2.0
// Edits the configuration of an OCI container (config.json) so that the library and the arbiter's socket
// reach the inside. Pure.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace sharedgpu::cli {

// The library, the socket and the variables that the processes of a job share. Without a library, the process
// that asks is in no job with sharedgpu, or `obstacle` says why containers of the job cannot share GPUs.
struct JobReach {
  std::string obstacle;
  std::string library;                                         // path of libsharedgpu.so on the host
  std::vector<std::string> folders;                            // the container gets them at the same paths
  std::vector<std::pair<std::string, std::string>> variables;  // of the job, for the container's processes
};

// Returns the value of a variable of the environment; null if it is unset.
using Lookup = std::function<const char*(const char* name)>;
JobReach read_reach(const Lookup& lookup, const std::string& library);

// The treatment of variables that the container's configuration states already: an explicit wish of the user
// wins, but values that a batch step has handed down yield to the job's. The wish for an empty LD_PRELOAD
// keeps a container as it is.
enum class Stated { wins, yields };

// Adds the job's folders and variables to `spec`, and the library to its LD_PRELOAD. A mount that the
// configuration states already stays. A container outside of jobs that has inherited an LD_PRELOAD with the
// library loses this entry instead, since the loader would complain about it at each command. Returns an
// empty string, or the reason why `spec` is left unchanged.
std::string add_job(nlohmann::json& spec, const JobReach& job, Stated stated);

}  // namespace sharedgpu::cli
