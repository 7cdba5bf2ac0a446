// SPDX-License-Identifier: Apache-2.0
// Slurm's names for the steps of a job: a number, or a word for a step that Slurm starts itself. Pure; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/split.h"

namespace sharedgpu {

// These numbers equal those in slurm.h, which is not included because it declares all of Slurm's API.
inline constexpr std::uint32_t kExternStep = 0xfffffffc;       // SLURM_EXTERN_CONT
inline constexpr std::uint32_t kBatchStep = 0xfffffffb;        // SLURM_BATCH_SCRIPT
inline constexpr std::uint32_t kInteractiveStep = 0xfffffffa;  // SLURM_INTERACTIVE_STEP

struct WordForStep {
  std::string_view word;
  std::uint32_t step;
};
inline constexpr WordForStep kWordsForSteps[] = {
    {"batch", kBatchStep}, {"extern", kExternStep}, {"interactive", kInteractiveStep}};

// Parses "batch", "extern", "interactive" or a number; nullopt for any other text.
inline std::optional<std::uint32_t> parse_step(std::string_view text) {
  for (const auto& [word, step] : kWordsForSteps)
    if (text == word) return step;
  return parse_number<std::uint32_t>(text);
}

inline std::string format_step(std::uint32_t step) {
  for (const auto& [word, its] : kWordsForSteps)
    if (step == its) return std::string(word);
  return std::to_string(step);
}

}  // namespace sharedgpu
