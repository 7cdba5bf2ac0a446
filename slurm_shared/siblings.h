// SPDX-License-Identifier: Apache-2.0
// Where the rest of the installation is, seen from the file of the plugin that asks (PREFIX/lib/slurm/...).
// Nothing is compiled in, so the tree can be moved.
#pragma once

#include <string>

namespace sharedgpu {

std::string interposer_path();  // PREFIX/lib/sharedgpu/libsharedgpu.so
std::string command_path();     // PREFIX/bin/sharedgpu
std::string comment_path();     // PREFIX/sbin/sharedgpu-comment

// Keeps the plugin that asks in memory, whatever Slurm does: for threads that run in it.
void stay_loaded();

// A function of another plugin of ours in this folder, where that one is loaded into this process already;
// else null. `for_good`: that one then stays in memory, too.
void* sibling_function(const char* file, const char* name, bool for_good = false);

}  // namespace sharedgpu
