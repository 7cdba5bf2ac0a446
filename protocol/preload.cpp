// SPDX-License-Identifier: Apache-2.0
#include "protocol/preload.h"

namespace sharedgpu {
namespace {

constexpr std::string_view kSeparators = " :";

std::string_view file_name(std::string_view path) {
  std::size_t slash = path.rfind('/');
  return slash == path.npos ? path : path.substr(slash + 1);
}

// Calls `visit` with each entry of `value`.
template <class Visit>
void for_each_entry(std::string_view value, Visit visit) {
  for (;;) {
    std::size_t begin = value.find_first_not_of(kSeparators);
    if (begin == value.npos) return;
    value.remove_prefix(begin);
    std::string_view entry = value.substr(0, value.find_first_of(kSeparators));
    visit(entry);
    value.remove_prefix(entry.size());
  }
}

void append(std::string& list, std::string_view entry) {
  if (!list.empty()) list += ':';
  list += entry;
}

}  // namespace

bool has_preload(std::string_view value, std::string_view library) {
  bool found = false;
  for_each_entry(value,
                 [&](std::string_view entry) { found = found || file_name(entry) == file_name(library); });
  return found;
}

std::string without_preload(std::string_view value, std::string_view library) {
  if (!has_preload(value, library)) return std::string(value);
  std::string result;
  for_each_entry(value, [&](std::string_view entry) {
    if (file_name(entry) != file_name(library)) append(result, entry);
  });
  return result;
}

std::string with_preload(std::string_view value, std::string_view library) {
  std::string result = without_preload(value, library);
  append(result, library);
  return result;
}

}  // namespace sharedgpu
