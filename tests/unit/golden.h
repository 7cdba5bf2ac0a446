// SPDX-License-Identifier: Apache-2.0
// Golden files: texts under version control that describe an interface; see tests/golden.
#pragma once

#include <cstdio>
#include <string>

namespace sharedgpu::test {

// Returns true if `text` equals the file `name` in GOLDEN_FOLDER; otherwise prints the difference to standard
// output. If UPDATE_GOLDEN is set, writes `text` into the file, and returns true. GOLDEN_FOLDER and
// GOLDEN_TOOL are the target's compile definitions.
inline bool is_golden(const char* name, const std::string& text) {
  std::fflush(stdout);
  std::FILE* tool = popen((std::string(GOLDEN_TOOL " '" GOLDEN_FOLDER "/") + name + "'").c_str(), "we");
  if (tool == nullptr) return false;
  const bool written = std::fwrite(text.data(), 1, text.size(), tool) == text.size();
  return pclose(tool) == 0 && written;
}

}  // namespace sharedgpu::test
