// SPDX-License-Identifier: Apache-2.0
// This plugin's options of srun, sbatch and salloc: a table with their help texts, and the parsing of their
// values. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "protocol/messages.h"

namespace sharedgpu {

struct OptionInfo {
  const char* name;  // without the dashes
  const char* value;
  const char* help;
  // Returns an empty string, or an error about the value.
  std::string (*set)(JobOptions&, std::string_view value);
};

inline constexpr std::size_t kOptionCount = 6;
extern const std::array<OptionInfo, kOptionCount> kOptions;

// Sets option number `index` of kOptions. Returns an empty string, or a message that names option and value;
// `options` is then unchanged.
std::string set_option(JobOptions& options, std::size_t index, std::string_view value);

}  // namespace sharedgpu
