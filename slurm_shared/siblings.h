// SPDX-License-Identifier: Apache-2.0
// Paths of the installation. Searches for each file in the folders above the folder of the calling plugin. No
// path is compiled in, so the installation can be moved. For example, PREFIX/lib/slurm/*.so finds
// PREFIX/bin/sharedgpu, and plugins in Slurm's own folder, such as /usr/lib/x86_64-linux-gnu/slurm-wlm or
// /usr/lib64/slurm, find /usr/bin/sharedgpu.
#pragma once

#include <string>
#include <string_view>

namespace sharedgpu {

std::string interposer_path();  // PREFIX/lib/sharedgpu/libsharedgpu.so
std::string command_path();     // PREFIX/bin/sharedgpu
std::string comment_path();     // PREFIX/sbin/sharedgpu-comment

// Returns the path of `file` in the nearest folder above `start` that has the file. If no folder has it,
// returns the path in the second folder above `start`, which is the prefix if `start` is PREFIX/lib/slurm.
std::string find_above(std::string_view start, std::string_view file);

// Keeps the calling plugin loaded even if Slurm closes it, because threads run in it.
void stay_loaded();

// Returns a function of another sharedgpu plugin in the folder of the calling plugin, or null if that plugin
// is not loaded in this process. If `for_good` is true, the other plugin then stays loaded until the process
// ends.
void* sibling_function(const char* file, const char* name, bool for_good = false);

}  // namespace sharedgpu
