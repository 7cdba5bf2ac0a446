// SPDX-License-Identifier: Apache-2.0
// The part of MungeMail (munge_mail.h) that runs in a child process: it sends and receives datagrams, which
// munged signs and checks.
//
// Users other than root cannot fill the socket's buffer: the Linux kernel drops datagrams from unprivileged
// source ports. munge authenticates the remaining datagrams, and rejects replayed datagrams.
#pragma once

#include <cstdint>
#include <string>

#include "arbiter/daemon/system.h"
#include "arbiter/gang/message.h"

namespace sharedgpu {

struct MailPlace {
  std::string address;  // address to listen on; empty: all addresses of the host
  std::uint16_t port = 0;
  std::string munge_socket;  // path of munged's socket; empty: munge's default path
};

// A datagram between the child and the daemon.
struct MailLine {
  enum class Kind : std::uint32_t {
    message,  // to the child: a message to send to `host`; from the child: a message received from `host`
    ready,    // from the child: the socket is open, or munged answers again
    trouble,  // from the child: the reason why messages cannot be sent
  };
  Kind kind = Kind::message;
  char host[260] = {};  // NUL-terminated, like `text`
  char text[kLongestGangMessage + 1] = {};
};

// Passes messages between the daemon and the network. The socket `end` connects this process with the daemon.
// Returns when the daemon has closed its end of the connection, or at once if munge's library cannot be
// loaded or the network socket cannot be opened.
void carry_mail(const System& system, const MailPlace& place, int end);

}  // namespace sharedgpu
