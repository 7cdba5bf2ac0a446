// SPDX-License-Identifier: Apache-2.0
// Paths of the installation, relative to the file of the calling plugin (PREFIX/lib/slurm/...). No path is
// compiled in, so the installation can be moved.
#pragma once

#include <string>

namespace sharedgpu {

std::string interposer_path();  // PREFIX/lib/sharedgpu/libsharedgpu.so
std::string command_path();     // PREFIX/bin/sharedgpu
std::string comment_path();     // PREFIX/sbin/sharedgpu-comment

// Keeps the calling plugin loaded even if Slurm closes it, because threads run in it.
void stay_loaded();

// Returns a function of another sharedgpu plugin in this folder, or null if that plugin is not loaded in this
// process. With `for_good`, that plugin stays loaded until the process ends.
void* sibling_function(const char* file, const char* name, bool for_good = false);

}  // namespace sharedgpu
