// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/visible.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "protocol/environment.h"
#include "protocol/split.h"

namespace sharedgpu::session {
namespace {

constexpr char kVisible[] = "CUDA_VISIBLE_DEVICES";

std::string_view without_leading_blanks(std::string_view entry) {
  entry.remove_prefix(std::min(entry.find_first_not_of(" \t\n\v\f\r"), entry.size()));
  return entry;
}

bool is_uuid(std::string_view entry) {
  entry = without_leading_blanks(entry);
  return !entry.empty() && (entry[0] == 'G' || entry[0] == 'M');
}

// Reads a number as the driver does, like strtoul. Ignores blanks and a plus sign before the number, and
// anything after the number ("CUDA_VISIBLE_DEVICES uses something like strtoul", torch/cuda/__init__.py in
// PyTorch).
std::optional<std::size_t> read_number(std::string_view entry) {
  entry = without_leading_blanks(entry);
  if (entry.starts_with('+')) entry.remove_prefix(1);
  std::size_t number = 0;
  if (std::from_chars(entry.data(), entry.data() + entry.size(), number).ec != std::errc{}) return {};
  return number;
}

}  // namespace

std::optional<std::string> visible_devices(std::string_view given, const char* asked) {
  if (asked == nullptr) return std::string(given);
  const std::vector<std::string_view> gpus = split(given, ',');
  const std::vector<std::string_view> entries = split(asked, ',');
  if (is_uuid(entries[0])) return std::nullopt;
  std::string visible;
  for (std::string_view entry : entries) {
    const std::optional<std::size_t> number = read_number(entry);
    if (!number || *number >= gpus.size()) break;
    if (!visible.empty()) visible += ',';
    visible += gpus[*number];
  }
  return visible;
}

void name_visible_devices() {
  const char* given = std::getenv(environment::kGpus);
  if (given == nullptr || *given == '\0') return;
  const char* asked = std::getenv(kVisible);
  const std::optional<std::string> visible = visible_devices(given, asked);
  if (visible && (asked == nullptr || *visible != asked)) setenv(kVisible, visible->c_str(), 1);
}

}  // namespace sharedgpu::session
