// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary text as Slurm's list of TRES counts. A count must be found in front of the text. It must
// also be found behind the text if the text has no count with the same id.
#include "accounting/usage_writer.h"
#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  constexpr std::uint32_t kId = 1001;
  const std::string list(fuzz::text_of(data, size));
  const auto count = find_tres(list, kId);
  const std::string own = std::to_string(kId) + "=" + std::to_string(count.value_or(7));
  fuzz::require(find_tres(own + "," + list, kId) == count.value_or(7), "the first count is not found");
  if (!count) fuzz::require(find_tres(list + "," + own, kId) == 7, "the last count is not found");
  return 0;
}
