// SPDX-License-Identifier: Apache-2.0
// The changes that administrators have made to the settings of a running arbiter (`sharedgpu set`). A change
// overrides the settings of the file until the change is cleared, even if the file changes.
//
// Not thread-safe; no exceptions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/settings.h"

namespace sharedgpu {

class Overrides {
 public:
  struct Entry {
    std::string section;  // as in the file, such as "[partition long]"; empty: no section, so the key is for
                          // the whole node
    std::string key;
    std::string value;
    bool operator==(const Entry&) const = default;
  };

  // Takes a text in the format of sharedgpu.conf. `KEY=` without a value clears the override of that key in
  // that section. On success, returns an empty string; on failure, returns an error message and changes
  // nothing.
  std::string change(std::string_view text);
  // Returns the settings of the file with these changes.
  Settings over(const Settings& file) const;
  // The changes in the order in which they were made.
  const std::vector<Entry>& all() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

}  // namespace sharedgpu
