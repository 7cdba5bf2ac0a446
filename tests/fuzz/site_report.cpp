// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary text as the output of sacct. The report must not count more jobs than twice the number of
// lines that it accepts.
#include "arbiter/cli/site_report.h"

#include <algorithm>
#include <string>

#include "input.h"
#include "protocol/split.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  cli::SiteReport report("2026-01-01T00:00:00", "2027-01-01T00:00:00");
  std::uint64_t lines = 0;
  std::string text(fuzz::text_of(data, size));
  // A printable character as separator lets the fuzzer produce separators more easily.
  std::replace(text.begin(), text.end(), '|', cli::kSacctDelimiter);
  for (const std::string_view line : split(text, '\n')) lines += report.add(line) ? 1 : 0;
  std::uint64_t jobs = 0;
  for (const auto& [who, sums] : report.sums()) jobs += sums.jobs;
  fuzz::require(jobs + report.untold() <= 2 * lines, "more jobs than lines");
  return 0;
}
