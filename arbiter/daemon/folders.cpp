// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/folders.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

namespace sharedgpu {

int make_folder(const std::string& path, mode_t mode) {
  std::error_code error;
  std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) return error.value();
  if (mkdir(path.c_str(), mode) == 0) return chmod(path.c_str(), mode) == 0 ? 0 : errno;
  struct stat info = {};
  if (errno != EEXIST || stat(path.c_str(), &info) != 0) return errno;
  return S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
}

}  // namespace sharedgpu
