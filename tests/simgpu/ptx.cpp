// SPDX-License-Identifier: Apache-2.0
#include "tests/simgpu/ptx.h"

#include <cctype>
#include <cstdlib>

namespace sharedgpu::simgpu {
namespace {

// The words of the text. Each punctuation mark is a word; comments are left out.
std::vector<std::string> tokens_of(const std::string& text) {
  std::vector<std::string> tokens;
  auto part_of_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '$' || c == '%';
  };
  for (std::size_t i = 0; i < text.size();) {
    if (text.compare(i, 2, "//") == 0) {
      i = text.find('\n', i);
    } else if (text.compare(i, 2, "/*") == 0) {
      i = text.find("*/", i);
      if (i != std::string::npos) i += 2;
    } else if (part_of_word(text[i])) {
      std::size_t end = i;
      while (end < text.size() && part_of_word(text[end])) ++end;
      tokens.push_back(text.substr(i, end - i));
      i = end;
    } else {
      if (std::isspace(static_cast<unsigned char>(text[i])) == 0) tokens.emplace_back(1, text[i]);
      ++i;
    }
    if (i == std::string::npos) break;
  }
  return tokens;
}

// Returns the size of a type in bytes, such as 8 for ".u64"; 0 if `type` is no type.
std::size_t size_of_type(const std::string& type) {
  if (type.size() < 3 || type[0] != '.') return 0;
  if (std::string("busf").find(type[1]) == std::string::npos) return 0;
  return static_cast<std::size_t>(std::atoi(type.c_str() + 2)) / 8;
}

}  // namespace

std::optional<std::vector<PtxEntry>> parse_ptx(const std::string& text) {
  auto tokens = tokens_of(text);
  if (tokens.empty() || tokens[0] != ".version") return std::nullopt;
  auto at = [&](std::size_t i) -> const std::string& {
    static const std::string none;
    return i < tokens.size() ? tokens[i] : none;
  };
  std::vector<PtxEntry> entries;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] != ".entry") continue;
    PtxEntry entry{at(++i), {}};
    ++i;
    if (at(i) == "(") {
      // The syntax of a parameter: .param [.align N] .TYPE NAME[N]
      std::size_t size = 0;
      for (++i; at(i) != ")"; ++i) {
        if (i >= tokens.size()) return std::nullopt;
        if (at(i) == ".param") {
          size = 0;
        } else if (at(i) == ".align") {
          ++i;
        } else if (at(i) == "[") {
          entry.parameters.back() *= static_cast<std::size_t>(std::atoi(at(i + 1).c_str()));
          i += 2;
        } else if (std::size_t type = size_of_type(at(i)); type != 0) {
          size = type;
        } else if (size != 0 && at(i) != "," && at(i)[0] != '.') {
          entry.parameters.push_back(size);
          size = 0;
        }
      }
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace sharedgpu::simgpu
