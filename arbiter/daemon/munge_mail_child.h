// SPDX-License-Identifier: Apache-2.0
// The part of MungeMail that runs in a child process: uses the socket and talks to munged.
//
// Users other than root cannot fill the socket's buffer: the kernel drops datagrams from unprivileged source
// ports. munge authenticates the remaining datagrams, and drops replayed datagrams.
#pragma once

#include <cstdint>
#include <string>

#include "arbiter/daemon/system.h"
#include "arbiter/gang/letter.h"

namespace sharedgpu {

struct MailPlace {
  std::string address;  // address to listen on; empty: all addresses of the host
  std::uint16_t port = 0;
  std::string munge_socket;  // empty: munge's own default
};

// A datagram between the child and the daemon.
struct MailLine {
  enum class Kind : std::uint32_t {
    letter,   // to the child: a letter to send to `host`; from the child: a letter received from `host`
    ready,    // from the child: the socket is open, or munged answers again
    trouble,  // from the child: the reason why letters cannot be sent
  };
  Kind kind = Kind::letter;
  char host[260] = {};  // NUL-terminated, like `text`
  char text[kLongestLetter + 1] = {};
};

// Carries letters between `end` and the network. Returns when the daemon has closed the other end, or at once
// if the socket cannot be opened.
void carry_mail(const System& system, const MailPlace& place, int end);

}  // namespace sharedgpu
