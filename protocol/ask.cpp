// SPDX-License-Identifier: Apache-2.0
#include "protocol/ask.h"

#include <cerrno>
#include <chrono>
#include <thread>

namespace sharedgpu {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kRetryEvery{20};

bool may_pass(int error) { return error == ENOENT || error == ECONNREFUSED || error == EAGAIN; }

}  // namespace

int connect_patiently(const char* socket, Nanoseconds patience, Channel& channel) {
  const Clock::time_point end = Clock::now() + patience;
  while (int error = channel.connect(socket)) {
    if (!may_pass(error)) return error;
    if (Clock::now() + kRetryEvery >= end) return error == EAGAIN ? ETIMEDOUT : error;
    std::this_thread::sleep_for(kRetryEvery);
  }
  return 0;
}

int ask(Channel& channel, const Message& question, Nanoseconds patience, Message& answer, UniqueFd& fd) {
  if (int error = channel.send(question)) return error;
  if (int error = channel.wait(patience)) return error;
  return channel.receive(answer, fd);
}

int ask(const char* socket, const Message& question, Nanoseconds patience, Message& answer) {
  const Clock::time_point end = Clock::now() + patience;
  Channel channel;
  if (int error = connect_patiently(socket, patience, channel)) return error;
  UniqueFd ignored;
  return ask(channel, question, end - Clock::now(), answer, ignored);
}

bool is_listening(const char* socket) {
  Channel channel;
  int error = channel.connect(socket);
  return error == 0 || error == EAGAIN;
}

}  // namespace sharedgpu
