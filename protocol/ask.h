// SPDX-License-Identifier: Apache-2.0
// One question to the arbiter and its answer, with one timeout for the whole exchange.
//
// For callers that must never be held up, such as the Slurm plugins: no function here blocks beyond its
// timeout. Any thread.
#pragma once

#include "protocol/channel.h"

namespace sharedgpu {

// Connects to `socket`, sends `question` and waits for `answer`, at most `patience` in all. Retries while
// nobody listens there, because an arbiter may be starting. Returns 0 or an errno value: ETIMEDOUT if the
// arbiter listens but does not answer, otherwise the error of connecting or of receive().
//
// If the arbiter goes away before it answers (it was killed, or had no descriptor left), the question is sent
// again to the next one. So it must be safe to ask a question twice.
int ask(const char* socket, const Message& question, Nanoseconds patience, Message& answer);

// The timeout for the answer of an arbiter that listens, given the timeout for an absent one: a listening
// arbiter may be slow.
constexpr Nanoseconds answer_patience(Nanoseconds timeout) {
  constexpr Nanoseconds kLeast = std::chrono::seconds(1);
  return timeout > kLeast ? timeout : kLeast;
}

// Does the same with one timeout for each connection attempt and another for the whole exchange. The
// connection stays in `channel`. On an error, `channel` is empty if no arbiter was reached.
struct Patience {
  Nanoseconds connect{};
  Nanoseconds answer{};  // for the whole exchange
};
int ask(const char* socket, const Message& question, const Patience& patience, Channel& channel,
        Message& answer);

// The two halves of ask(), for callers that keep the connection or want the descriptor that comes with the
// answer.
int connect_patiently(const char* socket, Nanoseconds patience, Channel& channel);
int ask(Channel& channel, const Message& question, Nanoseconds patience, Message& answer, UniqueFd& fd);

// Returns true if an arbiter listens at `socket` at this moment.
bool is_listening(const char* socket);

}  // namespace sharedgpu
