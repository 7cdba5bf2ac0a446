// SPDX-License-Identifier: Apache-2.0
// The options of srun, sbatch, salloc and `sharedgpu run` by which a user states how a job shares GPUs.
// kOptions has their names and help texts; set_option() parses their values. Pure; any thread.
//
// To add an option:
//   1. In job_options.cpp, add a function that sets the option's value, and a row in kOptions. In this file,
//      add a name to JobOption. In option_effects.cpp, add a row to kEffects with a function that returns why
//      the option has no effect under some settings.
//   2. If the arbiter needs the option, add a field at the end of RegisterJob (protocol/messages.h), and a
//      row in protocol/versions.h; fill the field in spank/registration.cpp. Add the same field to
//      RunRequest, and fill it in arbiter/cli/run.cpp. Store the values of both fields in TenantInfo
//      (arbiter/daemon/jobs.cpp). Do not add a field to JobOptions, since messages have fields after their
//      JobOptions. Instead, add the field to GivenOptions. Check the value in arbiter/daemon/validity.cpp,
//      merge the values of a job's steps in arbiter/daemon/terms.cpp, and record the result in OptionsRecord,
//      so that it survives restarts of the arbiter (arbiter/ledger/records.h lists the steps).
//   3. Test the option in tests/unit/config/job_options.cpp and option_effects.cpp, tests/fuzz/options.cpp,
//      tests/cluster/options.bats and tests/unit/arbiter/cli/exit_statuses.sh. Test a new field of
//      RegisterJob in tests/unit/protocol/wire_golden.cpp. Regenerate tests/unit/config/options.golden,
//      options_sharedgpu.golden and exit_statuses.golden in tests/unit/arbiter/cli, and wire.golden (see
//      tests/golden).
//   4. Document the option in docs/man/sharedgpu.1, and in docs/usage.md and README.md, which contain the
//      help texts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/messages.h"

namespace sharedgpu {

// The position of each option in kOptions.
enum class JobOption : std::uint8_t { memory, share, priority, deadline, backend, gpus, summary };
inline constexpr std::size_t kOptionCount = 7;

struct GivenOptions;

struct OptionInfo {
  const char* name;  // the option's name without the prefix
  const char* value;
  const char* help;      // the help text in srun, sbatch and salloc
  const char* run_help;  // the help text in `sharedgpu run`
  // Returns an empty string, or a description of the valid values.
  std::string (*set)(GivenOptions&, std::string_view value);
};

extern const std::array<OptionInfo, kOptionCount> kOptions;

// The prefixes of option names in the commands of Slurm, and in `sharedgpu run`.
inline constexpr char kSlurmPrefix[] = "--sharedgpu-";
inline constexpr char kRunPrefix[] = "--";

// The options of a command line.
struct GivenOptions {
  const char* prefix = kSlurmPrefix;  // of static lifetime
  JobOptions job;
  std::optional<bool> summary = {};             // nullopt: the site's settings decide
  std::array<std::string, kOptionCount> texts;  // as the user wrote them; empty: option not given

  // "--sharedgpu-memory"
  std::string name(std::size_t index) const { return std::string(prefix) + kOptions[index].name; }
};

// Sets option number `index` of kOptions. On success, returns an empty string. On failure, returns a message
// that names option and value, and leaves `given` unchanged.
std::string set_option(GivenOptions& given, std::size_t index, std::string_view value);

}  // namespace sharedgpu
