// SPDX-License-Identifier: Apache-2.0
// Opens a session: connects to the arbiter, and receives Welcome with the lease page.
#pragma once

#include "protocol/channel.h"

namespace sharedgpu::session {

struct Handshake {
  enum class Result { welcome, absent, refused };
  Result result = Result::absent;
  int error = 0;          // an errno value if the result is `absent`
  char reason[160] = {};  // the arbiter's reason if the result is `refused`
  Channel channel;        // this and the fields below are set only if the result is `welcome`
  Welcome welcome;
  UniqueFd page;
};

// Makes one attempt to connect to `path`, sends `hello` and waits for the answer. The attempt takes at most
// `patience` or a second, whichever is longer.
Handshake try_hands(const char* path, const Hello& hello, Nanoseconds patience);

// Does the same, but while the arbiter is not running or is starting, repeats the attempt until `patience`
// has passed.
Handshake shake_hands(const char* path, const Hello& hello, Nanoseconds patience);

}  // namespace sharedgpu::session
