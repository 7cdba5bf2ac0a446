// SPDX-License-Identifier: Apache-2.0
// The options of srun, sbatch, salloc and `sharedgpu run` by which a user states how a job shares GPUs: a
// table with their help texts, and the parsing of their values. Pure; any thread.
//
// To add an option:
//   1. In job_options.cpp: a function that sets its value, and a row in kOptions. Here: a name of JobOption.
//      In option_effects.cpp: a row in kEffects, which says under which settings the option has no effect.
//   2. If the arbiter needs it: a field at the end of RegisterJob (protocol/messages.h), filled in by
//      spank/registration.cpp, with a row in protocol/versions.h. Do not add a field to JobOptions, which
//      lies in the middle of messages. So OptionInfo::set then needs a type that contains both JobOptions and
//      the new field. The arbiter checks the value in arbiter/daemon/validity.cpp, merges the values of a
//      job's steps in terms.cpp there, and keeps the result over restarts in OptionsRecord
//      (arbiter/ledger/records.h has the recipe).
//   3. Test it in tests/unit/config/job_options.cpp and option_effects.cpp, tests/fuzz/options.cpp,
//      tests/cluster/options.bats and tests/unit/command/exit_statuses.sh. Test a new field of RegisterJob in
//      tests/unit/protocol/wire_golden.cpp. Regenerate tests/unit/slurm/options.golden,
//      options_sharedgpu.golden and exit_statuses.golden in tests/unit/command, and wire.golden (see
//      tests/golden).
//   4. Document it in docs/usage.md and README.md, which have the help texts, and docs/man/sharedgpu.1.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "protocol/messages.h"

namespace sharedgpu {

// The number of each option in kOptions.
enum class JobOption : std::uint8_t { memory, share, priority, deadline, backend, gpus };
inline constexpr std::size_t kOptionCount = 6;

struct OptionInfo {
  const char* name;  // without its prefix
  const char* value;
  const char* help;      // of srun, sbatch and salloc
  const char* run_help;  // of `sharedgpu run`
  // Returns an empty string, or a description of the valid values.
  std::string (*set)(JobOptions&, std::string_view value);
};

extern const std::array<OptionInfo, kOptionCount> kOptions;

// The prefixes of option names in the commands of Slurm, and in `sharedgpu run`.
inline constexpr char kSlurmPrefix[] = "--sharedgpu-";
inline constexpr char kRunPrefix[] = "--";

// The options of a command line.
struct GivenOptions {
  const char* prefix = kSlurmPrefix;  // of static lifetime
  JobOptions job;
  std::array<std::string, kOptionCount> texts;  // the values as written; empty: not given

  // "--sharedgpu-memory"
  std::string name(std::size_t index) const { return std::string(prefix) + kOptions[index].name; }
};

// Sets option number `index` of kOptions. On success, returns an empty string. On failure, returns a message
// that names option and value, and leaves `given` unchanged.
std::string set_option(GivenOptions& given, std::size_t index, std::string_view value);

}  // namespace sharedgpu
