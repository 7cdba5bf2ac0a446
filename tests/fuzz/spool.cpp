// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary text as an entry of the spool of AdminComments. The result is no entry, or an entry that
// is the same after writing and reading it again.
#include "comment/spool.h"

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  const auto entry = parse_entry(fuzz::text_of(data, size));
  if (!entry) return 0;
  const auto again = parse_entry(format_entry(*entry));
  fuzz::require(again.has_value(), "an entry that was written cannot be read");
  fuzz::require(again->job == entry->job && again->seen.begin == entry->seen.begin &&
                    again->seen.end == entry->seen.end && again->share == entry->share,
                "an entry reads otherwise when it is written again");
  run_of({{.begin = 1000, .end = 2000}, {.begin = 3000, .end = 0}}, entry->seen);
  return 0;
}
