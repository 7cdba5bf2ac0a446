// SPDX-License-Identifier: Apache-2.0
#include "config/overrides.h"

#include <algorithm>

#include "protocol/split.h"

namespace sharedgpu {

std::string Overrides::change(std::string_view text) {
  Settings checked;
  std::string kept;  // the lines that set a value
  std::vector<Entry> entries = entries_;
  std::string section;
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty()) continue;
    const std::size_t equals = line.find('=');
    if (line.front() == '[') {
      section = line;
      kept += section + "\n";
      continue;
    }
    if (equals == line.npos || equals + 1 < line.size()) kept += std::string(line) + "\n";
    if (equals == line.npos) continue;  // change_settings() below returns the error
    const std::string key(line.substr(0, equals));
    const auto same = [&](const Entry& each) { return each.section == section && each.key == key; };
    const bool was_set = std::erase_if(entries, same) > 0;
    if (equals + 1 < line.size())
      entries.push_back({.section = section, .key = key, .value = std::string(line.substr(equals + 1))});
    else if (!was_set)
      return section + (section.empty() ? "" : " ") + key + ": nothing is set that could be cleared";
  }
  if (std::string error = change_settings(kept, checked); !error.empty()) return error;
  entries_ = std::move(entries);
  return {};
}

Settings Overrides::over(const Settings& file) const {
  Settings settings = file;
  for (const Entry& entry : entries_)
    change_settings(entry.section + "\n" + entry.key + "=" + entry.value + "\n", settings);
  return settings;
}

}  // namespace sharedgpu
