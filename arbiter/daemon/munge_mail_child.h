// SPDX-License-Identifier: Apache-2.0
// The part of MungeMail that runs in a child process: the socket, and munged.
//
// Whoever is not root on some host of the cluster cannot reach the socket's buffer: datagrams from ports that
// any user may have are dropped in the kernel. munge tells who has written the rest, and drops what comes
// twice.
#pragma once

#include <cstdint>
#include <string>

#include "arbiter/daemon/system.h"
#include "arbiter/gang/letter.h"

namespace sharedgpu {

struct MailPlace {
  std::string address;  // to listen on; empty: all
  std::uint16_t port = 0;
  std::string munge_socket;  // empty: munge's own default
};

// Between the child and the daemon, one datagram each.
struct MailLine {
  enum class Kind : std::uint32_t {
    letter,   // to the child: for the host; from the child: of the host
    ready,    // from the child: the socket is open, or munged answers again
    trouble,  // from the child: what keeps letters from going out
  };
  Kind kind = Kind::letter;
  char host[260] = {};  // NUL-terminated, as the text is
  char text[kLongestLetter + 1] = {};
};

// Carries letters between `end` and the network until the other side of `end` is gone, or it cannot start.
void carry_mail(const System& system, const MailPlace& place, int end);

}  // namespace sharedgpu
