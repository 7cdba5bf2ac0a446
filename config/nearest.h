// SPDX-License-Identifier: Apache-2.0
// Finds the correct spelling of a misspelled word in a list of words. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sharedgpu {

// Returns the candidate that differs from `word` in the fewest letters, without regard to case and dashes.
// Returns an empty text if more than a third of the word's letters differ, if several candidates are equally
// near, or if `word` has more than 64 characters.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates);

// Returns "; did you mean X?", or an empty text.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates);

}  // namespace sharedgpu
