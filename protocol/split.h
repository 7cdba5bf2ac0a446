// SPDX-License-Identifier: Apache-2.0
// Splits, joins and parses text. Pure; any thread.
#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sharedgpu {

// Returns the parts between the separators, including empty parts. An empty text has one part, which is
// empty.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

inline std::string join(const std::vector<std::string>& parts, char separator) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : std::string(1, separator)) + parts[i];
  return text;
}

// The number, if all of `text` is one decimal number that fits the type; otherwise nullopt.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || rest != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace sharedgpu
