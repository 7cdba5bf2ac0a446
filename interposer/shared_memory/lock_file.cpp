// SPDX-License-Identifier: Apache-2.0
#include "interposer/shared_memory/lock_file.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstdio>

namespace sharedgpu::shared_memory {
namespace {

// The exporter keeps byte kExporter locked as long as its process exists. When the exporter has died, one
// importer counts the memory of allocation n in its place. This importer locks byte kHeirs + n.
constexpr std::uint64_t kExporter = LockFile::kMostExports;
constexpr std::uint64_t kHeirs = 2 * LockFile::kMostExports;

struct flock lock_of(short type, std::uint64_t byte) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(byte);
  lock.l_len = 1;
  return lock;
}

bool set(const UniqueFd& file, short type, std::uint64_t byte) {
  struct flock lock = lock_of(type, byte);
  return fcntl(file.get(), F_OFD_SETLK, &lock) == 0;
}

// Returns true if another open file description has locked this byte.
bool is_locked(const UniqueFd& file, std::uint64_t byte) {
  struct flock lock = lock_of(F_WRLCK, byte);
  return file && fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace

bool LockFile::create() {
  UniqueFd file(memfd_create("sharedgpu-loans", MFD_CLOEXEC));
  if (!file || !set(file, F_WRLCK, kExporter)) return false;
  move_out_of_the_way(file);
  adopt(static_cast<UniqueFd&&>(file));
  return true;
}

UniqueFd LockFile::for_importer() const {
  if (!file_) return {};
  char path[40];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", file_.get());
  return UniqueFd(open(path, O_RDWR | O_CLOEXEC));
}

bool LockFile::is_held(std::uint64_t number) const { return is_locked(file_, number); }

void LockFile::hold(std::uint64_t number) const { set(file_, F_RDLCK, number); }

void LockFile::let_go(std::uint64_t number) const {
  set(file_, F_UNLCK, number);
  set(file_, F_UNLCK, kHeirs + number);
}

bool LockFile::exporter_lives() const { return is_locked(file_, kExporter); }

bool LockFile::inherit(std::uint64_t number) const { return set(file_, F_WRLCK, kHeirs + number); }

}  // namespace sharedgpu::shared_memory
