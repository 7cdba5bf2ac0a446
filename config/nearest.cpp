// SPDX-License-Identifier: Apache-2.0
#include "config/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sharedgpu {
namespace {

// Longer words are not compared: keys and commands are short, and the time of a comparison grows with the
// square of the length.
constexpr std::size_t kLongest = 64;

std::string plain(std::string_view word) {
  std::string letters;
  for (const char c : word)
    if (c != '-') letters += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return letters;
}

// The edit distance of two words: the least number of letters that must be inserted, removed, replaced, or
// swapped with a neighbouring letter to turn one word into the other.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before_last;
  std::vector<std::size_t> last(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::vector<std::size_t> row = {i + 1};
    for (std::size_t j = 0; j < b.size(); ++j) {
      row.push_back(std::min({row[j] + 1, last[j + 1] + 1, last[j] + (a[i] == b[j] ? 0 : 1)}));
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j])
        row[j + 1] = std::min(row[j + 1], before_last[j - 1] + 1);
    }
    before_last = std::exchange(last, std::move(row));
  }
  return last.back();
}

}  // namespace

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
  if (word.size() > kLongest) return {};
  const std::string given = plain(word);
  const std::size_t most = given.size() / 3;
  std::string_view best;
  std::size_t least = most + 1;
  bool tied = false;
  for (const std::string_view candidate : candidates) {
    const std::size_t steps = distance(given, plain(candidate));
    tied = steps == least ? true : steps < least ? false : tied;
    if (steps < least) best = candidate;
    least = std::min(least, steps);
  }
  if (tied) return {};
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates) {
  const std::string_view found = nearest(word, candidates);
  return found.empty() ? "" : "; did you mean " + std::string(found) + "?";
}

}  // namespace sharedgpu
