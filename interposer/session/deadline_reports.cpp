// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/deadline_reports.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <string_view>
#include <vector>

#include "protocol/split.h"

namespace sharedgpu::session {
namespace {

constexpr int kMostReads =
    16;  // most reads per call, so that a flood of reports does not delay the arbiter's messages

bool is_pipe(const DeadlinePipe& pipe) {
  struct stat info = {};
  return fstat(pipe.fd, &info) == 0 && S_ISFIFO(info.st_mode) && info.st_ino == pipe.inode;
}

}  // namespace

bool read_deadline_pipe(const char* text, DeadlinePipe& pipe) {
  const std::vector<std::string_view> parts = split(text, ':');
  const auto fd = parse_number<unsigned>(parts.front());
  const auto inode = parse_number<ino_t>(parts.back());
  if (parts.size() != 2 || !fd || *fd > INT_MAX || !inode) return false;
  pipe = {.fd = static_cast<int>(*fd), .inode = *inode};
  return true;
}

DeadlineReports::DeadlineReports(const DeadlinePipe& pipe) {
  if (pipe.fd < 0 || !is_pipe(pipe)) return;
  fd_ = pipe.fd;
  identity_ = FileIdentity(fd_);
}

Deadlines DeadlineReports::take() {
  Deadlines counts;
  for (int i = 0; i < kMostReads && fd_ >= 0; ++i) {
    char text[4096];
    const ssize_t size = identity_.is(fd_) ? read(fd_, text, sizeof text) : 0;
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (size <= 0) {
      fd_ = -1;  // no process has the write end open, or the program has closed the read end
      break;
    }
    lines_.feed(text, static_cast<std::size_t>(size), counts);
    if (size < static_cast<ssize_t>(sizeof text)) break;
  }
  return counts;
}

}  // namespace sharedgpu::session
