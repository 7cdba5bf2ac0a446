// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/doorbell.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace sharedgpu::session {

FileIdentity::FileIdentity(int fd) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return;
  device_ = info.st_dev;
  inode_ = info.st_ino;
}

bool FileIdentity::is(int fd) const {
  struct stat info = {};
  return inode_ != 0 && fstat(fd, &info) == 0 && info.st_dev == device_ && info.st_ino == inode_;
}

int Doorbell::open() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return errno;
  UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  move_out_of_the_way(reading);
  move_out_of_the_way(writing);
  const std::lock_guard lock(mutex_);
  drop();
  identity_ = FileIdentity(reading.get());
  reading_ = std::move(reading);
  writing_ = std::move(writing);
  return 0;
}

bool Doorbell::intact() const {
  const std::lock_guard lock(mutex_);
  return is_intact();
}

int Doorbell::fd() const {
  const std::lock_guard lock(mutex_);
  return reading_.get();
}

void Doorbell::ring() {
  const std::lock_guard lock(mutex_);
  if (!is_intact()) return;  // the service thread finds this at its next check, and makes a new pipe
  const char one = 1;
  [[maybe_unused]] ssize_t written = write(writing_.get(), &one, sizeof one);
}

void Doorbell::silence() {
  const std::lock_guard lock(mutex_);
  char all[256];
  while (is_intact() && read(reading_.get(), all, sizeof all) == sizeof all) {
  }
}

void Doorbell::drop() {
  for (UniqueFd* end : {&reading_, &writing_})
    if (!identity_.is(end->get())) end->release();
  reading_.reset();
  writing_.reset();
}

}  // namespace sharedgpu::session
