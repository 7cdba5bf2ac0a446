// SPDX-License-Identifier: Apache-2.0
#include "protocol/ask.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

namespace sharedgpu {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kRetryEvery{20};

bool may_pass(int error) { return error == ENOENT || error == ECONNREFUSED || error == EAGAIN; }
bool has_ended(int error) { return error == ECONNRESET || error == EPIPE; }

}  // namespace

int connect_patiently(const char* socket, Nanoseconds patience, Channel& channel) {
  const Clock::time_point end = Clock::now() + patience;
  while (int error = channel.connect(socket, end - Clock::now())) {
    if (!may_pass(error)) return error;
    if (Clock::now() + kRetryEvery >= end) return error == EAGAIN ? ETIMEDOUT : error;
    std::this_thread::sleep_for(kRetryEvery);
  }
  return 0;
}

int ask(Channel& channel, const Message& question, Nanoseconds patience, Message& answer, UniqueFd& fd) {
  // A peer that has refused this process and closed the connection cannot be sent to, but its refusal can be
  // read.
  if (int error = channel.send(question); error != 0 && error != EPIPE) return error;
  if (int error = channel.wait(patience)) return error;
  return channel.receive(answer, fd);
}

int ask(const char* socket, const Message& question, Nanoseconds patience, Message& answer) {
  Channel channel;
  return ask(socket, question, {.connect = patience, .answer = patience}, channel, answer);
}

int ask(const char* socket, const Message& question, const Patience& patience, Channel& channel,
        Message& answer) {
  const Clock::time_point end = Clock::now() + patience.answer;
  for (;;) {
    channel = Channel();
    const Nanoseconds left = end - Clock::now();
    if (int error = connect_patiently(socket, std::min(patience.connect, left), channel)) return error;
    UniqueFd ignored;
    const int error = ask(channel, question, end - Clock::now(), answer, ignored);
    if (!has_ended(error) || Clock::now() + kRetryEvery >= end) return error;
    std::this_thread::sleep_for(kRetryEvery);
  }
}

bool is_listening(const char* socket) {
  Channel channel;
  int error = channel.connect(socket);
  return error == 0 || error == EAGAIN;
}

}  // namespace sharedgpu
