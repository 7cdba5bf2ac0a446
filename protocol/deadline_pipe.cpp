// SPDX-License-Identifier: Apache-2.0
#include "protocol/deadline_pipe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>

#include "protocol/channel.h"
#include "protocol/environment.h"

namespace sharedgpu {
namespace {

// Returns a duplicate that stays open across exec. The duplicate has a high number, which programs rarely use
// themselves.
UniqueFd inherited(const UniqueFd& fd) {
  for (const int least : {960, 192, 3})
    if (const int copy = fcntl(fd.get(), F_DUPFD, least); copy >= 0) return UniqueFd(copy);
  return {};
}

}  // namespace

int make_deadline_pipe(Nanoseconds deadline,
                       const std::function<void(const char* name, const std::string& value)>& set) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return errno;
  const UniqueFd low_reading(ends[0]);
  const UniqueFd low_writing(ends[1]);
  UniqueFd reading = inherited(low_reading);
  UniqueFd writing = inherited(low_writing);
  struct stat info = {};
  if (!reading || !writing || fstat(reading.get(), &info) != 0) return errno;
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.9g", std::chrono::duration<double>(deadline).count());
  set(environment::kDeadline, seconds);
  set(environment::kDeadlineFd, std::to_string(writing.release()));
  set(environment::kDeadlineRead, std::to_string(reading.release()) + ":" + std::to_string(info.st_ino));
  return 0;
}

}  // namespace sharedgpu
