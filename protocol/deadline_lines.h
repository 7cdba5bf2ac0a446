// SPDX-License-Identifier: Apache-2.0
// Parses the lines by which a program reports whether it has met its deadlines: "met" or "missed". "pass",
// which CudaMon writes, means the same as "met". Other lines are ignored. Pure.
#pragma once

#include <cstddef>
#include <cstring>

#include "protocol/messages.h"

namespace sharedgpu {

class DeadlineLines {
 public:
  // Adds to `counts` the lines whose newline is in `text`. A line may begin in the text of an earlier call.
  void feed(const char* text, std::size_t size, Deadlines& counts) {
    const char* end = text + size;
    while (text != end) {
      const auto* newline =
          static_cast<const char*>(std::memchr(text, '\n', static_cast<std::size_t>(end - text)));
      const char* stop = newline != nullptr ? newline : end;
      for (; text != stop; ++text) {
        if (length_ < sizeof line_) line_[length_] = *text;
        if (length_ <= sizeof line_) ++length_;  // a longer line matches no word
      }
      if (newline == nullptr) return;
      ++text;
      if (is("met") || is("pass")) ++counts.met;
      if (is("missed")) ++counts.missed;
      length_ = 0;
    }
  }

 private:
  bool is(const char* word) const {
    return length_ == std::strlen(word) && std::memcmp(line_, word, length_) == 0;
  }

  char line_[8];
  std::size_t length_ = 0;
};

}  // namespace sharedgpu
