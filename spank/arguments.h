// SPDX-License-Identifier: Apache-2.0
// The arguments of the plugin's line in plugstack.conf. Pure.
#pragma once

#include <string>

namespace sharedgpu {

struct Arguments {
  std::string config;  // from config=FILE; empty for the default file, which may be missing
};

// Returns an empty string, or an error message that quotes the first invalid argument. After an error,
// `arguments` holds the valid arguments.
std::string parse_arguments(int count, const char* const* values, Arguments& arguments);

}  // namespace sharedgpu
