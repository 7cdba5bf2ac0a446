// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary text as the data that slurmd sends to slurmstepd. The units that the text yields must be
// the same after writing and reading them again.
#include "gres/shares.h"
#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  const std::string_view text = fuzz::text_of(data, size);
  gres::begins_with_units(text);
  gres::NodeUnits units;
  if (!gres::read_units(text, units)) {
    fuzz::require(units.devices.empty() && units.typed.empty(), "a list that is none has units");
    return 0;
  }
  const std::string written = gres::write_units(units);
  gres::NodeUnits again;
  fuzz::require(gres::read_units(written, again), "a list that was written cannot be read");
  fuzz::require(gres::write_units(again) == written, "a list reads otherwise when it is written again");
  fuzz::require(gres::begins_with_units("size" + written), "a list that was written is not known as one");
  return 0;
}
