// SPDX-License-Identifier: Apache-2.0
// Sends one question to the arbiter and receives its answer, within timeouts.
//
// For callers that must never hang, such as the Slurm plugins: no function here blocks beyond its timeout.
// Any thread.
#pragma once

#include "protocol/channel.h"

namespace sharedgpu {

// Connects to `socket`, sends `question` and waits for `answer`. All of this takes at most `patience`.
// Retries while no process listens at `socket`, because an arbiter may be starting. Returns 0 or an errno
// value: ETIMEDOUT if the arbiter listens but does not answer, otherwise the error of Channel::connect() or
// Channel::receive().
//
// If the arbiter closes the connection before it answers (because it was killed, or had no free descriptor),
// the question is sent again over a new connection. So a question must be safe to repeat.
int ask(const char* socket, const Message& question, Nanoseconds patience, Message& answer);

// Returns the time to wait for an answer of an arbiter that listens. `timeout` is the time to wait until an
// arbiter listens. Since an arbiter may be slow, the result is at least a second.
constexpr Nanoseconds answer_patience(Nanoseconds timeout) {
  constexpr Nanoseconds kLeast = std::chrono::seconds(1);
  return timeout > kLeast ? timeout : kLeast;
}

// Does the same as the first ask(), but has one timeout for making a connection and one for the whole call.
// The first timeout starts again whenever the question is sent again. The connection stays open in `channel`.
// After an error, `channel` is empty if the last attempt to connect has failed.
struct Patience {
  Nanoseconds connect{};  // for each connection attempt
  Nanoseconds answer{};   // for the whole exchange
};
int ask(const char* socket, const Message& question, const Patience& patience, Channel& channel,
        Message& answer);

// The two halves of ask(): for callers that keep the connection, or that need the descriptor that comes with
// the answer.
int connect_patiently(const char* socket, Nanoseconds patience, Channel& channel);
int ask(Channel& channel, const Message& question, Nanoseconds patience, Message& answer, UniqueFd& fd);

// Returns true if an arbiter listens at `socket` at this moment.
bool is_listening(const char* socket);

}  // namespace sharedgpu
