// SPDX-License-Identifier: Apache-2.0
// Letters to and from the arbiters of other nodes: texts that may be lost, come late, twice or in another
// order.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace sharedgpu {

class Mail {
 public:
  // `from`: the address of the host that sent it, to which an answer may be sent.
  using Heard = std::function<void(const std::string& from, std::string_view text)>;
  virtual ~Mail() = default;

  // Nothing is sent or heard before. `heard` is called with texts of other arbiters alone, never by send().
  virtual void start(Heard heard) = 0;
  // `host`: an address in numbers. The text is at most kLongestLetter bytes.
  virtual void send(const std::string& host, const std::string& text) = 0;
};

}  // namespace sharedgpu
