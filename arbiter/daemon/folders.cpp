// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/folders.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

namespace sharedgpu {

Status make_folder(const std::string& path, mode_t mode) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) return Status::of_errno(error.value(), path);
  if (mkdir(path.c_str(), mode) == 0)
    return chmod(path.c_str(), mode) == 0 ? Status() : Status::of_errno(errno, path);
  struct stat info = {};
  if (errno != EEXIST || stat(path.c_str(), &info) != 0) return Status::of_errno(errno, path);
  return S_ISDIR(info.st_mode) ? Status() : Status::of_errno(ENOTDIR, path);
}

}  // namespace sharedgpu
