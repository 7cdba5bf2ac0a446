// SPDX-License-Identifier: Apache-2.0
// An arbiter that a test controls: it accepts one session at a time, and answers the session's Attach,
// requests for growth, and queries. The test sends all other messages.
#pragma once

#include <chrono>
#include <future>
#include <optional>
#include <string>

#include "protocol/channel.h"
#include "protocol/lease_page.h"
#include "protocol/messages.h"

namespace sharedgpu::test {

class ScriptedArbiter {
 public:
  explicit ScriptedArbiter(std::string socket_path);
  ~ScriptedArbiter();
  ScriptedArbiter(const ScriptedArbiter&) = delete;
  ScriptedArbiter& operator=(const ScriptedArbiter&) = delete;

  void listen();
  // Waits until a session has connected and sent Hello.
  Hello accept();
  void welcome(bool open, Epoch epoch);
  // Calls `initialize`, which calls cuInit, and welcomes its session. Returns the result of `initialize`.
  template <class Initialize>
  auto begin(Initialize initialize, bool open = true) {
    listen();
    auto done = std::async(std::launch::async, initialize);
    accept();
    welcome(open, {1});
    return done.get();
  }
  void refuse(const char* reason);
  // Closes the connection and removes the socket, as if the arbiter had died.
  void die();

  template <class Body>
  void say(const Body& body) {
    send(Message::of(body));
  }
  // Waits for a message of this kind, and answers other messages meanwhile. Throws after a minute.
  template <class Body>
  Body expect() {
    return wait_for(Body::kType).template as<Body>();
  }
  // Answers messages until `done` returns true.
  template <class Done>
  void serve_until(Done done) {
    while (!done()) step(std::chrono::milliseconds(10));
  }

  LeasePageWriter& page() { return page_; }
  // The capacity that the arbiter's answers report.
  Bytes capacity = gibibytes(1);
  Bytes allowed = gibibytes(1);
  bool grant = true;
  // Growth is refused if the session's footprint would exceed `device_most`, or if its away memory would
  // exceed `away_most`. Sessions may have away memory if `away_most` is not zero.
  Bytes device_most{~0ull};
  Bytes away_most;
  bool refuse_attach = false;

  std::optional<Usage> last_usage;
  int attaches = 0;
  int queries = 0;
  int wants = 0;
  int idles = 0;
  int deadlines = 0;
  int claims = 0;  // requests whose answer no thread of the session awaits
  // The protocol version in which the arbiter sends messages.
  std::uint16_t version = kProtocolVersion;

 private:
  void send(const Message& message, int descriptor = -1);
  std::optional<Message> step(std::chrono::milliseconds patience);
  Message wait_for(MessageType type);

  std::string path_;
  UniqueFd listener_;
  Channel session_;
  LeasePageWriter page_;
};

}  // namespace sharedgpu::test
