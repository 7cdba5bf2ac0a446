// SPDX-License-Identifier: Apache-2.0
// The folders in which the arbiter makes files.
#pragma once

#include <sys/types.h>

#include <string>

#include "protocol/channel.h"
#include "protocol/status.h"

namespace sharedgpu {

// Makes `path`, with that mode whatever the umask is, and the folders above it that are missing. A folder
// that is there stays as it is.
Status make_folder(const std::string& path, mode_t mode);

// Fails where another user could put files in the place of the arbiter's: where `path`, a folder above it or
// a link on the way belongs to neither root nor this process's user, or all users may write to it. Above
// `path` the sticky bit makes up for the latter. A group that may write is the administrator's choice.
Status check_folder(const std::string& path);

// Locks the folder for this process, until `lock` is closed or the process ends; its children do not have the
// lock. EBUSY: another process has it, which the message names by its pid.
Status lock_folder(const std::string& path, UniqueFd& lock);

}  // namespace sharedgpu
