// SPDX-License-Identifier: Apache-2.0
// Sends messages to the arbiters of other nodes, and receives their messages. A message is a text that may be
// lost, delayed, duplicated or reordered.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace sharedgpu {

class Mail {
 public:
  // `from`: the address of the sending host, usable for an answer.
  using Heard = std::function<void(const std::string& from, std::string_view text)>;
  virtual ~Mail() = default;

  // Call before send(). `heard` is called only with texts of other arbiters, and never from within send().
  virtual void start(Heard heard) = 0;
  // `host`: a numeric address. The text is at most kLongestGangMessage bytes.
  virtual void send(const std::string& host, const std::string& text) = 0;
};

}  // namespace sharedgpu
