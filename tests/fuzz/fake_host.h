// SPDX-License-Identifier: Apache-2.0
// A fake host for the daemon's fuzzer: the host's processes, users, clock and faults are values in the
// fuzzer's process.
//
// The clock stands still until advance() is called; Asio's timers use it, too. Children of the daemon are
// fake, too: fake_host.cpp replaces fork(), waitpid(), kill(), socketpair(), timerfd_create() and the steady
// clock for the whole program. Only one thread uses the fake host; other threads see the real clock.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arbiter/daemon/system.h"
#include "arbiter/ledger/files.h"

namespace sharedgpu::fuzz {

// A fake process of a user, outside Slurm or in a step. The process ends when `ended` is closed.
struct FakeProcess {
  pid_t pid = 0;
  uid_t uid = 0;
  std::string cgroup;
  std::optional<uid_t>
      namespace_owner;  // owner of its user namespace; none: the process is in the host's own namespace
  std::uint64_t program = 1;
  bool stopped = false;
  UniqueFd pidfd, ended;  // the read end and the write end of a pipe; closing `ended` ends the process
};

class FakeHost : public System {
 public:
  FakeHost();
  ~FakeHost() override;

  // Errno values with which each kind of call fails; 0: the calls succeed.
  int reading = 0, descriptors = 0, peers = 0, signals = 0, forks = 0;
  bool random_numbers = true;
  bool children_end = true;  // a child that closes connections ends at once
  int disk = 0;              // errno of all operations on the ledger's files except reading
  bool holds_all = true;     // the last write to the ledger's files was complete
  // kMemory is the size of the machine's host memory; the limit of each memory cgroup is half of it.
  // `used_memory` is the use of the machine and of each cgroup.
  static constexpr Bytes kMemory = gibibytes(16);
  Bytes used_memory;
  void heal();
  bool is_well() const { return (reading | descriptors | peers | signals | forks | disk) == 0; }

  void advance(Nanoseconds time);
  // Starts a process. The reference is valid until the process ends.
  FakeProcess& start(uid_t uid, const std::string& cgroup);
  FakeProcess* find(pid_t pid);
  void end(pid_t pid) { processes_.erase(pid); }
  // The pids of the living processes.
  std::vector<pid_t> pids() const;

  // Children of the daemon.
  pid_t fork_child();
  bool has_child(pid_t pid) const { return children_.count(pid) != 0; }
  void end_child(pid_t pid) { children_.erase(pid); }
  void end_children() { children_.clear(); }
  // Keeps the child's end of a new survey's connection. The next process that is forked is the survey's
  // child, and gets this end of the connection.
  void begin_survey(UniqueFd end) { begun_ = std::move(end); }
  // Returns the end of the connection that the survey's child has; -1 if there is no such child.
  int survey() const;

  // The address to which a peer binds its socket, so that the arbiter takes the peer for process `pid`.
  static std::string address_of(pid_t pid);

  Nanoseconds now() const override;
  Nanoseconds wall_time() const override;
  Status read_file(const std::string& path, std::string& text) const override;
  std::optional<std::vector<std::string>> list_folder(const std::string& path,
                                                      std::size_t most) const override;
  Status owner_of(const std::string& path, uid_t& owner) const override;
  std::string group_folder(const std::string& group) const override { return "/sys/fs/cgroup" + group; }
  Status read_group(const std::string& group, const char* file, std::string& text) const override {
    return read_file(group_folder(group) + "/" + file, text);
  }
  Status make_group(const std::string& group, const char*, const std::string&) const override {
    return change_of(group);
  }
  Status enter_group(const std::string& group, pid_t) const override { return change_of(group); }
  Status remove_group(const std::string& group) const override { return change_of(group); }
  std::unique_ptr<Aside> aside() const override {
    struct AtOnce : Aside {
      void run(std::function<void()> work) override { work(); }
    };
    return std::make_unique<AtOnce>();
  }
  bool credentials_of(int socket, ucred& credentials) const override;
  UniqueFd open_peer(int socket, pid_t pid) const override;
  UniqueFd open_process(pid_t pid) const override;
  std::vector<ino_t> pid_namespaces(pid_t pid, std::size_t count) const override;
  std::optional<uid_t> user_namespace_owner(pid_t pid) const override;
  int send_signal(int pidfd, int number) const override;
  UniqueFd duplicate(int descriptor) const override;
  bool socket_pair(UniqueFd& one, UniqueFd& other) const override;
  UniqueFd memory_file(const char* name) const override;
  bool random(void* bytes, std::size_t size) const override;
  std::optional<uid_t> find_user(const std::string& name) const override;
  void* open_library(const char*) const override { return nullptr; }

 private:
  Status change_of(const std::string& group) const {
    return reading == 0 ? Status() : Status::of_errno(reading, group);
  }
  bool memory_text(std::string_view path, std::string& text) const;

  std::map<pid_t, FakeProcess> processes_;
  struct Child {
    UniqueFd ended;   // like FakeProcess::ended
    UniqueFd survey;  // empty: the child closes connections
  };
  std::map<pid_t, Child> children_;
  mutable std::map<pid_t, UniqueFd> child_pidfds_;  // pidfds that the daemon has not opened yet
  UniqueFd begun_;
  pid_t last_pid_ = 1000;
  pid_t last_child_;
  mutable std::uint64_t random_ = 0;
};

// The ledger's files on a disk of `host`: operations fail with the error `host.disk`.
struct FakeDisk : FileCalls {
  explicit FakeDisk(FakeHost& its) : host(its) {}
  int open(const std::string& path, int flags) override;
  ssize_t write(int file, const void* bytes, std::size_t size) override;
  int link(const std::string& from, const std::string& to) override;
  int rename(const std::string& from, const std::string& to) override;
  int unlink(const std::string& path) override;
  FakeHost& host;
};

}  // namespace sharedgpu::fuzz
