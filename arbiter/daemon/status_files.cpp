// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/status_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "protocol/write_all.h"

namespace sharedgpu {
namespace {

constexpr char kSubject[] = "status";

// Makes the file read-only: the file can only shrink, and other processes cannot open it for writing.
bool make_read_only(int file) {
  return fchmod(file, S_IRUSR | S_IRGRP | S_IROTH) == 0 &&
         fcntl(file, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0;
}

}  // namespace

const StatusFiles::File* StatusFiles::newest(std::optional<uid_t> viewer) const {
  const auto found =
      std::find_if(files_.rbegin(), files_.rend(), [&](const File& file) { return file.viewer == viewer; });
  return found == files_.rend() ? nullptr : &*found;
}

Status StatusFiles::add(const std::string& text, std::optional<uid_t> viewer) {
  File made{
      .viewer = viewer, .own = system_.memory_file("sharedgpu-status"), .to_read = {}, .size = text.size()};
  if (!made.own || !write_all(made.own.get(), text.data(), text.size()) || !make_read_only(made.own.get()))
    return Status::of_errno(errno, kSubject);
  made.to_read = system_.reopen_to_read(made.own.get());
  if (!made.to_read) return Status::of_errno(errno, kSubject);
  files_.push_back(std::move(made));
  if (files_.size() <= kMost) return {};
  const bool emptied = ftruncate(files_.front().own.get(), 0) == 0;
  files_.pop_front();
  return emptied ? Status() : Status::of_errno(errno, kSubject);
}

}  // namespace sharedgpu
