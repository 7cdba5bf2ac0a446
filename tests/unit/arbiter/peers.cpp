// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/peers.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "arbiter/daemon/processes.h"
#include "systems.h"

namespace sharedgpu {
namespace {

using test::kHostSystem;

TEST_CASE("A peer is who the kernel says it is") {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
  Peer peer;
  CHECK(identify(kHostSystem, ends[0], peer).ok());
  CHECK(peer.pid == getpid());
  CHECK(peer.uid == getuid());
  CHECK(peer.started == start_time_of(kHostSystem, getpid()));
  CHECK(peer.started != 0);
  CHECK(peer.pidfd);
  CHECK(start_time_of(kHostSystem, 0) == 0);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace sharedgpu
