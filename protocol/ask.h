// SPDX-License-Identifier: Apache-2.0
// One question to the arbiter and its answer, with a limit on the whole.
//
// For callers that must never be held up, such as the Slurm plugins: nothing here blocks for longer than
// told. Any thread may call.
#pragma once

#include "protocol/channel.h"

namespace sharedgpu {

// Connects to `socket`, sends `question` and waits for `answer`, `patience` in all. While nobody listens
// there it tries again, as an arbiter may just be starting. Returns 0 or an errno value: ETIMEDOUT where the
// arbiter listens but does not answer, otherwise why it could not be reached or what receive() found.
//
// An arbiter that is gone before it has answered is asked again: it was killed, or had no descriptor left,
// and the next one answers. So a question must do no harm where it is asked twice.
int ask(const char* socket, const Message& question, Nanoseconds patience, Message& answer);

// The wait for the answer of an arbiter that listens, if the wait for an absent one is `timeout`: it is slow,
// and not absent.
constexpr Nanoseconds answer_patience(Nanoseconds timeout) {
  constexpr Nanoseconds kLeast = std::chrono::seconds(1);
  return timeout > kLeast ? timeout : kLeast;
}

// The same with a limit of its own for each connection, and the connection stays in `channel`. On an error
// that is empty where nobody was reached.
struct Patience {
  Nanoseconds connect{};
  Nanoseconds answer{};  // for all of it
};
int ask(const char* socket, const Message& question, const Patience& patience, Channel& channel,
        Message& answer);

// The two halves of it, for callers that keep the connection or want the descriptor that comes with the
// answer.
int connect_patiently(const char* socket, Nanoseconds patience, Channel& channel);
int ask(Channel& channel, const Message& question, Nanoseconds patience, Message& answer, UniqueFd& fd);

// True if an arbiter listens at `socket` at this moment.
bool is_listening(const char* socket);

}  // namespace sharedgpu
