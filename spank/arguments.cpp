// SPDX-License-Identifier: Apache-2.0
#include "spank/arguments.h"

#include <string_view>

namespace sharedgpu {

std::string parse_arguments(int count, const char* const* values, Arguments& arguments) {
  constexpr std::string_view kConfig = "config=";
  std::string wrong;
  for (int i = 0; i < count; ++i) {
    std::string_view argument = values[i];
    std::string problem;
    if (argument.substr(0, kConfig.size()) != kConfig) {
      problem = "unknown argument '" + std::string(argument) + "' (only config=FILE is known)";
    } else if (argument.remove_prefix(kConfig.size()); argument.empty() || argument.front() != '/') {
      problem = "config: '" + std::string(argument) + "' is not an absolute path";
    } else {
      arguments.config = argument;
    }
    if (!problem.empty() && wrong.empty()) wrong = "plugstack.conf: " + problem;
  }
  return wrong;
}

}  // namespace sharedgpu
