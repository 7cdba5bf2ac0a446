// SPDX-License-Identifier: Apache-2.0
// The operating system as the daemon uses it, apart from sockets and timers: the clock, processes,
// descriptors, random numbers, users and the driver's libraries. Tests override it to make calls fail.
//
// The methods of this class use the real host. A method that returns a descriptor returns an empty one on
// failure and sets errno. Any thread; no exceptions.
//
// To inject a fault:
//   1. If the call is not here yet, add a virtual method, and pass a System to its users in the daemon.
//   2. In tests/unit/arbiter/systems.h let FaultySystem override it and fail as one of its fields says. Its
//      field `reading` gives an errno for each path that is read; other calls have fields of their own.
//   3. Test the arbiter with it in tests/unit/arbiter/faults.cpp, or the part alone, as gpus.cpp there does.
//      Faults of the ledger's files go through FileCalls (arbiter/ledger/files.h), see journal.cpp there.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocol/channel.h"
#include "protocol/status.h"
#include "protocol/units.h"

namespace sharedgpu {

// A thread beside the event loop. It runs work in the order in which it comes. The destructor waits for the
// work under way; work that has not begun is dropped.
class Aside {
 public:
  virtual ~Aside() = default;
  virtual void run(std::function<void()> work) = 0;
};

class System {
 public:
  virtual ~System() = default;

  // CLOCK_BOOTTIME: the clock of all times that outlive the arbiter.
  virtual Nanoseconds now() const;
  // Wall-clock time since 1970.
  virtual Nanoseconds wall_time() const;

  // Reads the whole file, or as much of it as can be read: reading a file of a process that is ending may
  // fail midway.
  virtual Status read_file(const std::string& path, std::string& text) const;
  // Returns the names in the folder, at most `most`; nullopt if the folder cannot be read to its end.
  virtual std::optional<std::vector<std::string>> list_folder(const std::string& path,
                                                              std::size_t most) const;
  // The user that owns the file or folder; of a symbolic link, the link's own.
  virtual Status owner_of(const std::string& path, uid_t& owner) const;

  // ---- memory control groups, see control_groups.cpp. A group is a path in the hierarchy that has the
  // memory controller, such as "/sharedgpu/run_7"; empty: the root. The errors are errno values. ----

  // The group's folder in the file system, which need not exist; empty if no hierarchy has the controller.
  virtual std::string group_folder(const std::string& group) const;
  virtual Status read_group(const std::string& group, const char* file, std::string& text) const;
  // The next three wait for locks and grace periods of the kernel, often for ten milliseconds: see aside().
  // Makes the group, and those above it where they are missing, and writes `value` to its file.
  virtual Status make_group(const std::string& group, const char* file, const std::string& value) const;
  // Moves the process with all its threads into the group. Its memory so far stays charged where it was.
  virtual Status enter_group(const std::string& group, pid_t pid) const;
  // Fails with EBUSY if a process or a group is in the group. A group that does not exist is no error.
  virtual Status remove_group(const std::string& group) const;
  virtual std::unique_ptr<Aside> aside() const;

  // ---- processes, descriptors, users ----

  // The process and user connected to the socket. Returns false on failure, with errno.
  virtual bool credentials_of(int socket, ucred& credentials) const;
  // A pidfd of the process connected to the socket, whose pid is `pid`.
  virtual UniqueFd open_peer(int socket, pid_t pid) const;
  // A pidfd; readable when the process has ended.
  virtual UniqueFd open_process(pid_t pid) const;
  // The inodes of the PID namespaces of the process, `count` of them from the outermost in; empty on failure.
  virtual std::vector<ino_t> pid_namespaces(pid_t pid, std::size_t count) const;

  // Returns the owner of the process's outermost user namespace below this process's own; nullopt if the
  // process is in this process's user namespace, or if unknown.
  virtual std::optional<uid_t> user_namespace_owner(pid_t pid) const;

  // As pidfd_send_signal(). Returns 0 or an errno value: ESRCH if the process has ended.
  virtual int send_signal(int pidfd, int number) const;

  virtual UniqueFd duplicate(int descriptor) const;
  // The two ends of a seqpacket connection. Returns false on failure, with errno.
  virtual bool socket_pair(UniqueFd& one, UniqueFd& other) const;
  // An empty memfd that can be sealed.
  virtual UniqueFd memory_file(const char* name) const;
  // A read-only descriptor of the same file.
  virtual UniqueFd reopen_to_read(int descriptor) const;
  // Fills all bytes, or returns false.
  virtual bool random(void* bytes, std::size_t size) const;
  // The uid of that user.
  virtual std::optional<uid_t> find_user(const std::string& name) const;

  // As dlopen() and dlsym(); null on failure.
  virtual void* open_library(const char* name) const;
  virtual void* symbol(void* library, const char* name) const;
};

// True for the errno values of calls that lack descriptors or memory: a retry may succeed.
bool is_shortage(int code);

}  // namespace sharedgpu
