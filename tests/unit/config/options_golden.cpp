// SPDX-License-Identifier: Apache-2.0
// Compares the options that sbatch, srun and salloc take with options.golden, because users have these
// options in their scripts.
#include <catch2/catch.hpp>
#include <string>

#include "config/job_options.h"
#include "tests/unit/golden.h"

namespace sharedgpu {
namespace {

TEST_CASE("golden: options of sbatch") {
  std::string text =
      "# SPDX-License-Identifier: Apache-2.0\n"
      "# Made by options_golden.cpp; tests/golden says how to write it again.\n";
  for (const OptionInfo& option : kOptions)
    text += std::string(kSlurmPrefix) + option.name + "=" + option.value + "\n";
  CHECK(test::is_golden("options.golden", text));
}

}  // namespace
}  // namespace sharedgpu
