// SPDX-License-Identifier: Apache-2.0
// Features of the Linux kernel on which the tests run.
#pragma once

#include <sys/socket.h>

#include "protocol/channel.h"

namespace sharedgpu {

// Returns true if a socket can refuse descriptors (Linux 6.16 and later). On older versions of Linux, the
// arbiter itself detects the descriptors that it receives.
inline bool kernel_refuses_descriptors() {
  constexpr int kPassRights = 83;
  const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  int value = 0;
  socklen_t size = sizeof value;
  return getsockopt(socket.get(), SOL_SOCKET, kPassRights, &value, &size) == 0;
}

}  // namespace sharedgpu
