// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/peers.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <string>

#include "arbiter/daemon/processes.h"
#include "systems.h"

namespace sharedgpu {
namespace {

using test::FaultySystem;
using test::kHostSystem;

// Two ends of a connection of this process with itself.
struct SocketPair {
  int ends[2] = {-1, -1};
  SocketPair() { REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0); }
  ~SocketPair() {
    for (const int end : ends) close(end);
  }
};

Status identify(const System& system, Peer& peer) {
  const SocketPair pair;
  return sharedgpu::identify(system, pair.ends[0], peer);
}

TEST_CASE("The kernel's data determine who a peer is") {
  Peer peer;
  CHECK(identify(kHostSystem, peer).ok());
  CHECK(peer.pid == getpid());
  CHECK(peer.uid == getuid());
  CHECK(peer.started == start_time_of(kHostSystem, getpid()));
  CHECK(peer.started != 0);
  CHECK(peer.program == program_of(kHostSystem, getpid()));
  CHECK(peer.pidfd);
  CHECK(start_time_of(kHostSystem, 0) == 0);
}

TEST_CASE("A peer whose pid or pidfd cannot be obtained") {
  FaultySystem system;
  Peer peer;
  system.peers = ENOPROTOOPT;
  CHECK(identify(system, peer).message() == "SO_PEERCRED: Protocol not available");
  system.peers = 0;
  for (const int error : {EMFILE, ENFILE, ENOMEM}) {
    system.processes = error;
    const Status status = identify(system, peer);
    CHECK(is_shortage(status.code()));  // a retry may succeed a moment later
    CHECK_FALSE(peer.pidfd);
  }
  system.processes = ESRCH;
  const Status gone = identify(system, peer);
  CHECK(gone.message() == "pidfd_open: No such process");
  CHECK_FALSE(is_shortage(gone.code()));

  struct Elsewhere : System {
    bool credentials_of(int, ucred& credentials) const override {
      credentials = {};
      return true;
    }
  };
  const Status elsewhere = identify(Elsewhere(), peer);
  CHECK(elsewhere.message() == "the process is in another PID namespace, out of the arbiter's sight");
  CHECK_FALSE(is_shortage(elsewhere.code()));
}

TEST_CASE("A lack of descriptors lets no peer pass for another peer") {
  for (const std::string file : {"/stat", "/cgroup", "/status"})
    for (const int error : {EMFILE, ENFILE, ENOMEM}) {
      FaultySystem system;
      system.reading = [&](const std::string& path) { return path.ends_with(file) ? error : 0; };
      Peer peer;
      const Status status = identify(system, peer);
      CHECK(status.code() == error);
      CHECK(is_shortage(status.code()));
    }
}

TEST_CASE("A peer without data in /proc is not served") {
  const auto without = [](auto&& missing) {
    FaultySystem system;
    system.reading = [&](const std::string& path) { return missing(path) ? ENOENT : 0; };
    Peer peer;
    const Status status = identify(system, peer);
    CHECK(status.message() == "the process no longer runs as the user that connected");
    CHECK_FALSE(is_shortage(status.code()));
  };
  without([](const std::string&) { return true; });
  // The process exits between two reads.
  without([](const std::string& path) { return path.ends_with("/status"); });
  without([](const std::string& path) { return !path.ends_with("/stat"); });

  // If the cgroup of a process cannot be read for another reason, the process counts as being in no job, but
  // its user is known.
  FaultySystem system;
  system.reading = [](const std::string& path) { return path.ends_with("/cgroup") ? EACCES : 0; };
  Peer peer;
  CHECK(identify(system, peer).ok());
  CHECK_FALSE(peer.step);
  CHECK_FALSE(peer.task);
}

TEST_CASE("A peer that has ended meanwhile is not served") {
  struct Dead : System {
    UniqueFd open_peer(int, pid_t) const override {
      const pid_t child = fork();
      if (child == 0) _exit(0);
      UniqueFd pidfd = open_process(child);
      waitpid(child, nullptr, 0);
      return pidfd;
    }
  };
  Peer peer;
  CHECK(identify(Dead(), peer).message() == "the process has ended");
}

TEST_CASE("A peer has the step and the task of its cgroup") {
  struct InStep : System {
    Status read_file(const std::string& path, std::string& text) const override {
      if (!path.ends_with("/cgroup")) return System::read_file(path, text);
      text = "0::/system.slice/slurmstepd.scope/job_7/step_3/user/task_2\n";
      return {};
    }
    Status owner_of(const std::string&, uid_t& owner) const override {
      owner = folders_owner;
      return {};
    }
    uid_t folders_owner = 0;
  };
  InStep system;
  Peer peer;
  REQUIRE(identify(system, peer).ok());
  CHECK(peer.step == std::optional(StepName{.job = 7, .step = 3}));
  CHECK(peer.task == std::optional<std::uint32_t>(2));
  system.folders_owner = 1000;
  Peer other;
  REQUIRE(identify(system, other).ok());
  CHECK_FALSE(other.step);
  CHECK_FALSE(other.task);
}

// A process of the user `uid` in a user namespace of its own, until the scope ends.
struct InOwnNamespace {
  pid_t pid = -1;
  bool made = false;

  explicit InOwnNamespace(uid_t user) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid = fork();
    if (pid == 0) {
      const bool ready = setresuid(user, user, user) == 0 && unshare(CLONE_NEWUSER) == 0;
      if (write(ends[1], ready ? "y" : "n", 1) == 1) pause();
      _exit(0);
    }
    char answer = 'n';
    made = read(ends[0], &answer, 1) == 1 && answer == 'y';
    for (const int end : ends) close(end);
  }
  ~InOwnNamespace() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
};

TEST_CASE("A process counts on the owner of its user namespace, or on its own user") {
  CHECK(account_of(kHostSystem, getpid(), 1234) == 1234);
  CHECK(account_of(kHostSystem, getpid(), 0) == 0);
  CHECK(account_of(kHostSystem, 0, 1234) == 1234);
  const uid_t owner = getuid() == 0 ? 1234 : getuid();
  const InOwnNamespace process(owner);
  if (!process.made) {
    WARN("there are no user namespaces for ordinary users here");
    return;
  }
  CHECK(account_of(kHostSystem, process.pid, 100'001) == owner);
}

TEST_CASE("All processes that have ended count as one user, except root's") {
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  REQUIRE(waitpid(ended, nullptr, 0) == ended);
  CHECK(account_of(kHostSystem, ended, 100'001) == kEnded);
  CHECK(account_of(kHostSystem, ended, 100'002) == kEnded);
  CHECK(account_of(kHostSystem, ended, 0) == 0);
}

TEST_CASE("A process in a user namespace of root's counts on its own user") {
  struct Contained : System {
    std::optional<uid_t> user_namespace_owner(pid_t /*pid*/) const override { return 0; }
  };
  CHECK(account_of(Contained(), 77, 100'001) == 100'001);
}

TEST_CASE("A subordinate uid acts for the owner of its user namespace alone") {
  const auto peer = [](uid_t uid, uid_t account) {
    Peer made;
    made.uid = uid;
    made.account = account;
    return made;
  };
  CHECK(acts_for(peer(1000, 1000), 1000));
  CHECK(acts_for(peer(100'001, 1000), 1000));
  CHECK_FALSE(acts_for(peer(100'001, 1001), 1000));
  CHECK_FALSE(acts_for(peer(100'001, kEnded), kEnded));
}

}  // namespace
}  // namespace sharedgpu
