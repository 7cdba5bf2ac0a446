// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/closer.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "arbiter/daemon/watched.h"

namespace sharedgpu {
namespace {

// If the child hangs and the arbiter ends, the child must not hold the arbiter's lock, socket or ledger open.
void close_all_but(const std::vector<UniqueFd>& kept, int also_kept) {
  std::vector<int> others;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    const int fd = std::atoi(it->path().filename().c_str());
    const auto is_it = [fd](const UniqueFd& one) { return one.get() == fd; };
    if (fd != also_kept && std::none_of(kept.begin(), kept.end(), is_it)) others.push_back(fd);
  }
  for (const int fd : others) close(fd);
}

// Forks a child, which inherits the sockets. Closes the sockets in this process, and then lets the child
// exit. Returns the child's pid. If no child can be started, closes nothing and returns a negative number.
pid_t leave_to_child(std::vector<UniqueFd>& sockets) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  const UniqueFd closed(ends[0]);
  UniqueFd open_here(ends[1]);
  const pid_t child = fork();
  if (child < 0) return child;
  if (child == 0) {
    close_all_but(sockets, closed.get());
    char none;
    while (read(closed.get(), &none, 1) < 0 && errno == EINTR) {
    }
    _exit(0);
  }
  sockets.clear();
  return child;
}

}  // namespace

Closer::Closer(asio::io_context& loop, const System& system, Schedule& schedule)
    : loop_(loop), system_(system), schedule_(schedule) {}

void Closer::close(uid_t user, Channel connection, std::shared_ptr<void> place) {
  if (!connection || connection.discard_unread()) return;
  User& its = users_.try_emplace(user, loop_).first->second;
  its.waiting.sockets.emplace_back(connection.release());
  its.waiting.places.push_back(std::move(place));
  start_soon(user);
}

void Closer::start_soon(uid_t user) {
  if (std::exchange(users_.at(user).start_is_due, true)) return;
  schedule_.add(user, [this, user] {
    start(user);
    return false;
  });
}

// Starts a child that closes all waiting connections of the user, unless an earlier child of the user runs.
// If no child can be started, the connections stay open until the next call for this user.
void Closer::start(uid_t user) {
  const auto found = users_.find(user);
  if (found == users_.end()) return;
  User& its = found->second;
  its.start_is_due = false;
  const bool unwatched = its.child > 0 && !its.death.is_open();
  if (unwatched && waitpid(its.child, nullptr, WNOHANG) != 0) its.child = 0;
  if (its.child != 0 || its.waiting.sockets.empty()) return;
  const pid_t child = leave_to_child(its.waiting.sockets);
  if (child < 0) return;
  its.child = child;
  its.closing = std::exchange(its.waiting.places, {});
  watch(user, its);
}

void Closer::watch(uid_t user, User& its) {
  UniqueFd pidfd = system_.open_process(its.child);
  if (!pidfd || hand_over(pidfd, its.death)) return;
  await_death(its.death, [this, user] { finished(user); });
}

void Closer::finished(uid_t user) {
  User& its = users_.at(user);
  its.death.close();
  waitpid(std::exchange(its.child, 0), nullptr, 0);
  its.closing.clear();
  if (its.waiting.sockets.empty())
    users_.erase(user);
  else
    start_soon(user);
}

}  // namespace sharedgpu
