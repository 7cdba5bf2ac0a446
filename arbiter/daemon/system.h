// SPDX-License-Identifier: Apache-2.0
// The daemon's calls to the operating system, except sockets and timers: clock, processes, descriptors,
// random numbers, users and the driver's libraries. Tests override the methods of System to make calls fail.
//
// The methods of class System use the real host. A method that returns a descriptor returns an empty one on
// failure and sets errno. Any thread; no exceptions.
//
// To inject a fault:
//   1. If System lacks the call, add a virtual method, and pass a System to the code in the daemon that makes
//      the call.
//   2. In tests/unit/arbiter/daemon/systems.h, let FaultySystem override the method, and fail if a field of
//      FaultySystem says so. For failing reads, the field `reading` has an errno for each path; add a field
//      for another call.
//   3. Test the whole arbiter with a FaultySystem in tests/unit/arbiter/daemon/faults.cpp, or one part of it,
//      as tests/unit/arbiter/daemon/gpus.cpp does. To make the ledger's files fail, override FileCalls
//      (arbiter/ledger/files.h), as tests/unit/arbiter/daemon/journal.cpp does.
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

// A second thread that makes slow calls, one after the other, in the order in which run() was called. The
// destructor waits for the call that is running, and drops calls that have not begun.
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

  // Reads the whole file. If an error occurs midway, as it may for /proc files of a process that is ending,
  // `text` has the part read before the error.
  virtual Status read_file(const std::string& path, std::string& text) const;
  // Returns the names in the folder, at most `most` names; nullopt if an error occurs.
  virtual std::optional<std::vector<std::string>> list_folder(const std::string& path,
                                                              std::size_t most) const;
  // The owner of the file or folder. For a symbolic link, the owner of the link itself.
  virtual Status owner_of(const std::string& path, uid_t& owner) const;

  // ---- memory control groups, see control_groups.cpp. A group is a path in the hierarchy that has the
  // memory controller, such as "/sharedgpu/run_7"; empty: the root. The errors are errno values. ----

  // The group's folder in the file system, which need not exist; empty if no hierarchy has the controller, or
  // on failure.
  virtual std::string group_folder(const std::string& group) const;
  virtual Status read_group(const std::string& group, const char* file, std::string& text) const;
  // Makes the group and missing groups above it, and writes `value` to the group's file `file`. make_group(),
  // enter_group() and remove_group() often wait ten milliseconds for locks and grace periods of the Linux
  // kernel, so call them through aside().
  virtual Status make_group(const std::string& group, const char* file, const std::string& value) const;
  // Moves the process with all its threads into the group. Memory that the process already has stays charged
  // to its former group.
  virtual Status enter_group(const std::string& group, pid_t pid) const;
  // Fails with EBUSY if the group contains a process or a group. Succeeds if the group does not exist.
  virtual Status remove_group(const std::string& group) const;
  virtual std::unique_ptr<Aside> aside() const;

  // ---- processes, descriptors, users ----

  // The process and user connected to the socket. Returns false on failure, with errno.
  virtual bool credentials_of(int socket, ucred& credentials) const;
  // A pidfd of the process connected to the socket. `pid`: the pid of that process.
  virtual UniqueFd open_peer(int socket, pid_t pid) const;
  // A pidfd of the process; it is readable when the process has ended.
  virtual UniqueFd open_process(pid_t pid) const;
  // The inode numbers of the `count` innermost PID namespaces of the process, outermost first; empty on
  // failure.
  virtual std::vector<ino_t> pid_namespaces(pid_t pid, std::size_t count) const;

  // Returns the owner of the outermost user namespace that contains the process `pid` but not this process;
  // nullopt if there is no such namespace, or if the owner is unknown.
  virtual std::optional<uid_t> user_namespace_owner(pid_t pid) const;

  // Calls pidfd_send_signal(). Returns 0 or an errno value; ESRCH if the process has ended.
  virtual int send_signal(int pidfd, int number) const;

  virtual UniqueFd duplicate(int descriptor) const;
  // The two ends of a seqpacket connection. Returns false on failure, with errno.
  virtual bool socket_pair(UniqueFd& one, UniqueFd& other) const;
  // An empty memfd that can be sealed.
  virtual UniqueFd memory_file(const char* name) const;
  // Opens the file of `descriptor` again, for reading only.
  virtual UniqueFd reopen_to_read(int descriptor) const;
  // Fills all bytes, or returns false.
  virtual bool random(void* bytes, std::size_t size) const;
  // The uid of the user with this name.
  virtual std::optional<uid_t> find_user(const std::string& name) const;

  // Like dlopen() and dlsym(); null on failure.
  virtual void* open_library(const char* name) const;
  virtual void* symbol(void* library, const char* name) const;
};

// Returns true if the errno value `code` means that descriptors or memory are short, so that a retry may
// succeed.
bool is_shortage(int code);

}  // namespace sharedgpu
