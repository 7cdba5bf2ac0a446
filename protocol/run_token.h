// SPDX-License-Identifier: Apache-2.0
// The text of a run's token, as in environment::kToken: 32 hexadecimal digits, in lower case. Pure; any
// thread.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

#include "protocol/messages.h"

namespace sharedgpu {

inline std::string format_token(const RunToken& token) {
  std::string text;
  for (const unsigned byte : token.bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

// Returns false, and leaves `token` unchanged, if the text is no token.
inline bool parse_token(std::string_view text, RunToken& token) {
  if (text.size() != 2 * sizeof token.bytes ||
      text.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    return false;
  for (std::size_t i = 0; i < sizeof token.bytes; ++i)
    std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, token.bytes[i], 16);
  return true;
}

}  // namespace sharedgpu
