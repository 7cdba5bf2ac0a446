// SPDX-License-Identifier: Apache-2.0
// This plugin's options of srun, sbatch and salloc: a table with their help texts, and the parsing of their
// values. Pure.
//
// To add an option:
//   1. In options.cpp: a function that sets its value, and a row in kOptions. Here: kOptionCount.
//   2. If the arbiter needs it: a field at the end of RegisterJob (protocol/messages.h), filled in by
//      registration.cpp, with a row in protocol/versions.h. Not a field of JobOptions, which lies in the
//      middle of messages; so OptionInfo::set then needs a type that has both. The arbiter checks the value
//      in arbiter/daemon/validity.cpp, merges the values of a job's steps in terms.cpp there, and keeps the
//      result over restarts in OptionsRecord (arbiter/ledger/records.h has the recipe).
//   3. Test it in tests/unit/slurm/options_test.cpp, tests/fuzz/options.cpp and tests/cluster/options.bats, a
//      field of RegisterJob in tests/unit/protocol/wire_golden.cpp. Regenerate options.golden beside the
//      first, and wire.golden (see tests/golden).
//   4. Document it in docs/usage.md and README.md, which have the help texts.
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
