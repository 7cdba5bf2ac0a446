// SPDX-License-Identifier: Apache-2.0
// Starts the node's arbiter as a separate daemon.
#pragma once

#include <string>
#include <vector>

namespace sharedgpu {

// Starts `sharedgpu supervise --config CONFIG --tenants jobs` in a new session, with the given environment
// and none of the caller's descriptors. The new process is not a child of the caller. An empty `config` means
// the default. Returns an empty string once the program has been executed, or an error. If another arbiter
// listens on the socket, the new arbiter ends by itself.
std::string start_supervisor(const std::string& command, const std::string& config,
                             const std::vector<std::string>& environment);

// Starts any program as a daemon in the same way. `words` are the program and its arguments.
std::string start_daemon(const std::vector<std::string>& words, const std::vector<std::string>& environment);

// These functions return, in this order: the environment of this process, the initial environment of process
// `pid`, and the words of the command line of process `pid`.
std::vector<std::string> own_environment();
std::vector<std::string> environment_of(int pid);
std::vector<std::string> command_line_of(int pid);

// Returns `environment`, with SLURMD_NODENAME added if slurmd was started under another name than the host's
// (`-N`). The arbiter uses SLURMD_NODENAME as the node's name in commands to Slurm.
std::vector<std::string> with_node_name(std::vector<std::string> environment,
                                        const std::vector<std::string>& slurmd);

}  // namespace sharedgpu
