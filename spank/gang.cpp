// SPDX-License-Identifier: Apache-2.0
#include "spank/gang.h"

#include <cerrno>
#include <chrono>
#include <cstring>

#include "protocol/ask.h"

namespace sharedgpu {
namespace {

// An arbiter of an earlier version closes the connection instead of answering. If an arbiter is killed before
// it answers, its connection closes, too, but the next arbiter answers.
constexpr int kTries = 3;

int ask_some_times(const char* socket, const Message& question, Nanoseconds patience, Message& answer) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + patience;
  int error = 0;
  for (int i = 0; i < kTries; ++i) {
    Channel channel;
    UniqueFd ignored;
    error = connect_patiently(socket, end - Clock::now(), channel);
    if (error != 0) return error;
    error = ask(channel, question, end - Clock::now(), answer, ignored);
    if (error != ECONNRESET && error != EPIPE) return error;
  }
  return error;
}

}  // namespace

std::string register_gang(const char* socket, const RegisterGang& gang, Nanoseconds patience) {
  Message answer;
  const int error = ask_some_times(socket, Message::of(gang), patience, answer);
  if (error != 0) return std::string(socket) + ": " + std::strerror(error);
  if (answer.type == MessageType::refused) return answer.as<Refused>().reason;
  if (answer.type != MessageType::register_gang_reply || answer.as<RegisterGangReply>().accepted == 0)
    return "refused";
  return {};
}

}  // namespace sharedgpu
