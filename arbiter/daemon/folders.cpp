// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/folders.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>

namespace sharedgpu {
namespace {

Status check_one(const std::string& path, bool is_last) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) return Status::of_errno(errno, path);
  if (info.st_uid != 0 && info.st_uid != geteuid())
    return {EPERM, path + " belongs to uid " + std::to_string(info.st_uid)};
  const bool any_may_write = S_ISDIR(info.st_mode) && (info.st_mode & S_IWOTH) != 0;
  const bool keeps_names = !is_last && (info.st_mode & S_ISVTX) != 0;
  if (any_may_write && !keeps_names) return {EPERM, "all users may write to " + path};
  return {};
}

Status check_each(const std::filesystem::path& path) {
  std::filesystem::path above;
  for (auto name = path.begin(); name != path.end(); ++name) {
    above /= *name;
    if (Status checked = check_one(above, std::next(name) == path.end()); !checked.ok()) return checked;
  }
  return {};
}

}  // namespace

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

Status check_folder(const std::string& path) {
  std::error_code error;
  const std::filesystem::path named = std::filesystem::absolute(path, error);
  if (error) return Status::of_errno(error.value(), path);
  if (Status checked = check_each(named); !checked.ok()) return checked;
  const std::filesystem::path real = std::filesystem::canonical(named, error);  // follows links
  return error ? Status::of_errno(error.value(), path) : check_each(real);
}

Status lock_folder(const std::string& path, UniqueFd& lock) {
  lock.reset(open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return Status::of_errno(errno, path);
  struct flock all = {};
  all.l_type = F_WRLCK;
  if (fcntl(lock.get(), F_SETLK, &all) == 0) return {};
  if (errno != EAGAIN && errno != EACCES) return Status::of_errno(errno, path);
  std::string holder;
  if (fcntl(lock.get(), F_GETLK, &all) == 0 && all.l_type != F_UNLCK && all.l_pid > 0)
    holder = " (pid " + std::to_string(all.l_pid) + ")";
  lock.reset();
  return {EBUSY, path + ": another arbiter" + holder + " uses this folder"};
}

}  // namespace sharedgpu
