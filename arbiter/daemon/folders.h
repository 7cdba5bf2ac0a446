// SPDX-License-Identifier: Apache-2.0
// Folders that the arbiter makes.
#pragma once

#include <sys/types.h>

#include <string>

namespace sharedgpu {

// Makes `path`, with that mode whatever the umask is, and the folders above it that are missing. One that is
// there stays as it is. Returns 0 or an errno value.
int make_folder(const std::string& path, mode_t mode);

}  // namespace sharedgpu
