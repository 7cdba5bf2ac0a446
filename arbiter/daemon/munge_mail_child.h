// SPDX-License-Identifier: Apache-2.0
// The part of MungeMail that runs in a child process: the socket, and munged.
//
// Users other than root cannot fill the socket's buffer: the kernel drops datagrams from unprivileged source
// ports. munge authenticates the other datagrams and drops replayed ones.
#pragma once

#include <cstdint>
#include <string>

#include "arbiter/daemon/system.h"
#include "arbiter/gang/letter.h"

namespace sharedgpu {

struct MailPlace {
  std::string address;  // listening address; empty: all of the host's
  std::uint16_t port = 0;
  std::string munge_socket;  // empty: munge's own default
};

// A datagram between the child and the daemon.
struct MailLine {
  enum class Kind : std::uint32_t {
    letter,   // to the child: for `host`; from the child: from `host`
    ready,    // from the child: the socket is open, or munged answers again
    trouble,  // from the child: the reason for which letters cannot be sent
  };
  Kind kind = Kind::letter;
  char host[260] = {};  // NUL-terminated, like the text
  char text[kLongestLetter + 1] = {};
};

// Carries letters between `end` and the network until the other side of `end` is closed. Returns at once if
// it cannot start.
void carry_mail(const System& system, const MailPlace& place, int end);

}  // namespace sharedgpu
