// SPDX-License-Identifier: Apache-2.0
// Folders that the arbiter makes.
#pragma once

#include <sys/types.h>

#include <string>

#include "protocol/status.h"

namespace sharedgpu {

// Makes `path`, with that mode whatever the umask is, and the folders above it that are missing. A folder
// that is there stays as it is.
Status make_folder(const std::string& path, mode_t mode);

}  // namespace sharedgpu
