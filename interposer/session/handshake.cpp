// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/handshake.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "interposer/gate/wakeup.h"
#include "protocol/ask.h"

namespace sharedgpu::session {

using gate::now;

namespace {

// Returns true for errors that occur while the arbiter is not running or is starting.
bool may_pass(int error) {
  return error == ENOENT || error == ECONNREFUSED || error == EAGAIN || error == ECONNRESET || error == EPIPE;
}

int attempt(const char* path, const Hello& hello, Nanoseconds patience, Handshake& hands) {
  const Nanoseconds end = now() + patience;
  Channel channel;
  if (int error = channel.connect(path, patience)) return error;
  Message message;
  UniqueFd page;
  if (int error = ask(channel, Message::of(hello), end - now(), message, page)) return error;
  if (message.type == MessageType::refused) {
    hands.result = Handshake::Result::refused;
    auto refused = message.as<Refused>();
    refused.reason[sizeof refused.reason - 1] = '\0';
    std::memcpy(hands.reason, refused.reason, sizeof hands.reason);
    return 0;
  }
  if (message.type != MessageType::welcome || !page) return EPROTO;
  hands.result = Handshake::Result::welcome;
  hands.welcome = message.as<Welcome>();
  channel.move_out_of_the_way();
  hands.channel = std::move(channel);
  hands.page = std::move(page);
  return 0;
}

}  // namespace

Handshake try_hands(const char* path, const Hello& hello, Nanoseconds patience) {
  Handshake hands;
  hands.error = attempt(path, hello, answer_patience(patience), hands);
  return hands;
}

Handshake shake_hands(const char* path, const Hello& hello, Nanoseconds patience) {
  const Nanoseconds deadline = now() + patience;
  for (;;) {
    Handshake hands = try_hands(path, hello, deadline - now());
    if (hands.error == 0 || !may_pass(hands.error) || now() >= deadline) return hands;
    gate::nap(std::chrono::milliseconds(20));
  }
}

}  // namespace sharedgpu::session
