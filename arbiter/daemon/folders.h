// SPDX-License-Identifier: Apache-2.0
// The folders in which the arbiter creates files.
#pragma once

#include <sys/types.h>

#include <string>

#include "protocol/channel.h"
#include "protocol/status.h"

namespace sharedgpu {

// Creates `path` with exactly the mode `mode`, regardless of the umask, and creates missing folders above it.
// An existing folder is left unchanged.
Status make_folder(const std::string& path, mode_t mode);

// Fails if another user could replace the arbiter's files. That is possible if `path`, a folder above `path`
// or a symbolic link in `path` belongs to neither root nor this process's user, or is writable by all users.
// A world-writable folder above `path` is accepted if it has the sticky bit. Write permission of a group is
// accepted, because an administrator has granted it.
Status check_folder(const std::string& path);

// Locks the folder for this process until `lock` is closed or the process ends; children do not inherit the
// lock. Fails with EBUSY if another process has the lock; the message names the pid of that process.
Status lock_folder(const std::string& path, UniqueFd& lock);

}  // namespace sharedgpu
