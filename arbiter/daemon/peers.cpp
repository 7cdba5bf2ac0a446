// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/peers.h"

#include <poll.h>

#include <cerrno>
#include <string>

#include "arbiter/daemon/cgroups.h"
#include "arbiter/daemon/processes.h"

namespace sharedgpu {
namespace {

bool is_dead(const UniqueFd& pidfd) {
  pollfd entry = {.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) != 0;
}

}  // namespace

// A user namespace owned by root belongs to a container service that root runs for users, so the process's
// own user is charged. The user namespace of an ended process cannot be read. The uid of an ended process may
// be a subordinate uid, so kEnded is charged instead of this uid.
uid_t account_of(const System& system, pid_t pid, uid_t uid) {
  if (uid == 0) return 0;
  if (const auto owner = system.user_namespace_owner(pid)) return *owner == 0 ? uid : *owner;
  std::string stat;
  const int error = system.read_file("/proc/" + std::to_string(pid) + "/stat", stat).code();
  return pid > 0 && (error == ENOENT || error == ESRCH) ? kEnded : uid;
}

Status identify(const System& system, int socket, Peer& peer) {
  ucred credentials = {};
  if (!system.credentials_of(socket, credentials)) return Status::of_errno(errno, "SO_PEERCRED");
  peer.pid = credentials.pid;
  peer.uid = credentials.uid;
  if (peer.pid <= 0) return {ESRCH, "the process is in another PID namespace, out of the arbiter's sight"};

  // Opens the pidfd first. If the process is alive after the reads below, the files belong to this process
  // and not to a later process with the same pid.
  peer.pidfd = system.open_peer(socket, peer.pid);
  if (!peer.pidfd) return Status::of_errno(errno, "pidfd_open");
  const std::string process = "/proc/" + std::to_string(peer.pid);
  std::string stat, cgroup, status;
  const Status stat_read = system.read_file(process + "/stat", stat);
  const Status cgroup_read = system.read_file(process + "/cgroup", cgroup);
  const Status status_read = system.read_file(process + "/status", status);
  // Fails if descriptors or memory are short, because a process of a job would otherwise look like a process
  // outside of jobs.
  for (const Status* read : {&stat_read, &cgroup_read, &status_read})
    if (is_shortage(read->code())) return *read;
  peer.started = start_time_in(stat);
  peer.program = program_in(stat);
  peer.names = pid_names_in(system, peer.pid, status);
  if (Status found = step_of_process(system, cgroup, peer.step); !found.ok()) return found;
  if (peer.step) peer.task = task_of_cgroup(cgroup);
  // Older Linux kernels lack SO_PEERPIDFD. On such a kernel, the peer may have ended since it connected, and
  // a process of another user may have the peer's pid.
  if (!runs_as(status, peer.uid)) return {EPERM, "the process no longer runs as the user that connected"};
  if (is_dead(peer.pidfd)) return {ESRCH, "the process has ended"};
  return {};
}

}  // namespace sharedgpu
