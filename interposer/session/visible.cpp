// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/visible.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace sharedgpu::session {
namespace {

constexpr char kVisible[] = "CUDA_VISIBLE_DEVICES";

std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> entries;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    entries.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return entries;
}

bool is_uuid(std::string_view entry) { return !entry.empty() && (entry[0] == 'G' || entry[0] == 'M'); }

}  // namespace

std::optional<std::string> visible_devices(std::string_view given, const char* asked) {
  if (asked == nullptr) return std::string(given);
  const std::vector<std::string_view> gpus = split(given);
  const std::vector<std::string_view> entries = split(asked);
  if (is_uuid(entries[0])) return std::nullopt;
  std::string visible;
  for (std::string_view entry : entries) {
    std::size_t number = 0;
    auto [rest, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
    if (error != std::errc{} || rest != entry.data() + entry.size() || number >= gpus.size()) break;
    if (!visible.empty()) visible += ',';
    visible += gpus[number];
  }
  return visible;
}

void name_visible_devices() {
  const char* given = std::getenv("SHAREDGPU_GPUS");
  if (given == nullptr || *given == '\0') return;
  const char* asked = std::getenv(kVisible);
  const std::optional<std::string> visible = visible_devices(given, asked);
  if (visible && (asked == nullptr || *visible != asked)) setenv(kVisible, visible->c_str(), 1);
}

}  // namespace sharedgpu::session
