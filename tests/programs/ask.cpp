// SPDX-License-Identifier: Apache-2.0
// Asks the arbiter for its status again and again, on a new connection each time, with pauses of 50 ms.
// Prints how many microseconds each round trip took. Exit status 1 if a query was not answered.
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "protocol/ask.h"
#include "tests/programs/command_line.h"

using namespace sharedgpu;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::chrono::milliseconds kPause{50};
constexpr std::chrono::seconds kPatience{10};

int run(const std::string& socket, double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    const Clock::time_point began = Clock::now();
    Channel channel;
    Message answer;
    UniqueFd text;
    int error = connect_patiently(socket.c_str(), kPatience, channel);
    if (error == 0) error = ask(channel, Message::of(StatusQuery{}), kPatience, answer, text);
    if (error != 0 || answer.type != MessageType::status_reply) {
      std::fprintf(stderr, "ask: no status\n");
      return 1;
    }
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began);
    std::printf("%lld\n", static_cast<long long>(took.count()));
    std::this_thread::sleep_for(kPause);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  programs::CommandLine app("Asks the arbiter for its status again and again.");
  std::string socket = kDefaultSocket;
  double seconds = 5;
  app.add_option("--socket", socket, "the arbiter's");
  app.add_option("--seconds", seconds, "for so long").not_negative();
  app.parse(argc, argv);
  return run(socket, seconds);
}
