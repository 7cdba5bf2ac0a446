// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary text as a program's reports of its deadlines. The counts must not depend on how the text
// is split into pieces when it arrives.
#include "protocol/deadline_lines.h"

#include "input.h"
#include "protocol/split.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  const std::string_view text = fuzz::text_of(data, size);
  Deadlines whole;
  DeadlineLines().feed(text.data(), text.size(), whole);
  Deadlines pieces;
  DeadlineLines lines;
  for (std::size_t at = 0; at < size;) {
    const std::size_t length = std::min<std::size_t>(1 + data[at] % 9, size - at);
    lines.feed(text.data() + at, length, pieces);
    at += length;
  }
  fuzz::require(whole.met == pieces.met && whole.missed == pieces.missed,
                "pieces count otherwise than the whole");
  Deadlines expected;
  const auto words = split(text, '\n');
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    expected.met += words[i] == "met" || words[i] == "pass" ? 1 : 0;
    expected.missed += words[i] == "missed" ? 1 : 0;
  }
  fuzz::require(whole.met == expected.met && whole.missed == expected.missed, "lines are not counted");
  return 0;
}
