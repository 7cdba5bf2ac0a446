// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/json_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace sharedgpu {
namespace {

template <class Number>
void append(std::string& text, Number number) {
  char digits[32];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

bool is_plain(char byte) { return byte >= ' ' && byte <= '~' && byte != '"' && byte != '\\'; }

}  // namespace

void JsonText::separate() {
  if (!text_.empty() && text_.back() != '[' && text_.back() != '{') text_ += ',';
}

void JsonText::begin(std::string_view name) {
  separate();
  text_.append(1, '"').append(name).append("\":");
}

void JsonText::write_number(std::int64_t number) { append(text_, number); }
void JsonText::write_number(std::uint64_t number) { append(text_, number); }

// Writes a whole number with a decimal point, so that readers always see the same type.
void JsonText::write(double number) {
  if (!std::isfinite(number)) return write(nullptr);
  const std::size_t begin = text_.size();
  append(text_, number);
  if (text_.find_first_of(".e", begin) == text_.npos) text_ += ".0";
}

void JsonText::write(std::string_view text) {
  if (std::all_of(text.begin(), text.end(), is_plain))
    text_.append(1, '"').append(text).append(1, '"');
  else
    text_ += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace sharedgpu
