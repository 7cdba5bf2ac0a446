// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/deadlines.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <vector>

#include "arbiter/cli/commands.h"
#include "arbiter/cli/stand_in.h"
#include "include/sharedgpu_deadline.h"
#include "protocol/channel.h"
#include "protocol/deadline_lines.h"
#include "protocol/environment.h"

namespace sharedgpu::cli {
namespace {

// The size of one read. If poll() reports that a pipe is writable, a write of this size does not block.
constexpr int kPiece = 4096;
// Milliseconds between two checks of whether the child has ended. The end of stderr does not show that the
// child has ended, since processes that the child leaves behind may keep stderr open forever.
constexpr int kLook = 20;

// Writes to stderr. Blocks while the reader of stderr is slow, as a write of the user's command itself would.
// Returns false if the reader is gone, or if the child has ended and a signal has asked this process to end.
bool write_all(const char* text, ssize_t size, StandIn& child) {
  while (size > 0) {
    pollfd entry = {.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    child.child_has_ended();
    if (poll(&entry, 1, kLook) <= 0) {
      if (child.is_to_hurry()) return false;
      continue;
    }
    const ssize_t written = write(STDERR_FILENO, text, static_cast<std::size_t>(size));
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (written <= 0) return written == 0 || errno != EPIPE;
    text += written;
    size -= written;
  }
  return true;
}

// Copies the available text to stderr, and reports the deadlines in it. Returns false if no process can write
// more text, or no process reads stderr.
bool pass_on(int from, DeadlineLines& lines, StandIn& child) {
  char text[kPiece];
  const ssize_t size = read(from, text, sizeof text);
  if (size <= 0) return size < 0 && (errno == EINTR || errno == EAGAIN);
  const bool read_on = write_all(text, size, child);
  Deadlines counts;
  lines.feed(text, static_cast<std::size_t>(size), counts);
  for (; counts.met > 0; --counts.met) sharedgpu_deadline(1);
  for (; counts.missed > 0; --counts.missed) sharedgpu_deadline(0);
  return read_on;
}

bool has_more(int from, int milliseconds) {
  pollfd entry = {.fd = from, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, milliseconds) > 0;
}

// Returns the read end of the deadline pipe, or -1. This process keeps the read end open, since writes to the
// pipe would fail otherwise.
int reading_end_of_deadlines() {
  const char* text = std::getenv(environment::kDeadlineRead);
  return text == nullptr ? -1 : std::atoi(text);
}

// Connects stdin and stdout to /dev/null, and closes all descriptors above 2 except `kept`, so that readers
// see end-of-file when the child closes its copies.
void keep_only(std::initializer_list<int> kept) {
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) dup2(null.get(), fd);
  std::vector<int> others;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error))
    if (const int fd = std::atoi(entry.path().filename().c_str());
        fd > STDERR_FILENO && std::find(kept.begin(), kept.end(), fd) == kept.end())
      others.push_back(fd);
  for (const int fd : others) close(fd);
}

}  // namespace

int run_with_stderr_read(const std::function<int()>& execute) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    complain(std::string("cannot create a pipe for stderr: ") + std::strerror(errno));
    return 1;
  }
  UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  for (UniqueFd* end : {&reading, &writing}) move_out_of_the_way(*end);  // the pipe may have got descriptor 2
  StandIn child;
  const int error = child.start([&] {
    dup2(writing.get(), STDERR_FILENO);
    return execute();
  });
  if (error != 0) {
    complain(std::string("cannot create a process: ") + std::strerror(error));
    return 1;
  }
  writing.reset();
  keep_only({reading.get(), sharedgpu_deadline_fd(), reading_end_of_deadlines()});

  DeadlineLines lines;
  bool open = true;
  while (open && !child.child_has_ended())
    if (has_more(reading.get(), kLook)) open = pass_on(reading.get(), lines, child);
  if (!open) reading.reset();  // makes writes of the child fail, as they would without this process
  while (!child.child_has_ended()) poll(nullptr, 0, kLook);
  // Reads only the text that the pipe contains at this point: later text comes from processes that the
  // program has left behind.
  int unread = 0;
  if (open && ioctl(reading.get(), FIONREAD, &unread) != 0) unread = 0;
  for (; open && unread > 0; unread -= kPiece) open = pass_on(reading.get(), lines, child);
  return child.end();
}

}  // namespace sharedgpu::cli
