// SPDX-License-Identifier: Apache-2.0
// Opening a session: from nothing to a Welcome and its lease page.
#pragma once

#include "protocol/channel.h"

namespace sharedgpu::session {

struct Handshake {
  enum class Result { welcome, absent, refused };
  Result result = Result::absent;
  int error = 0;          // of `absent`: an errno value
  char reason[160] = {};  // of `refused`
  Channel channel;        // of `welcome`, and so is what follows
  Welcome welcome;
  UniqueFd page;
};

// Connects to `path` once, says `hello` and waits for the answer, as long as `patience` or a second.
Handshake try_hands(const char* path, const Hello& hello, Nanoseconds patience);

// Connects to `path` and says `hello`; where nobody listens there yet, tries again until `patience` is over.
Handshake shake_hands(const char* path, const Hello& hello, Nanoseconds patience);

}  // namespace sharedgpu::session
