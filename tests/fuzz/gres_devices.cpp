// SPDX-License-Identifier: Apache-2.0
// Any text as the list of devices that slurmd sends to slurmstepd: the devices read from it are the same
// after writing and reading them again.
#include "gres/shares.h"
#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  const std::string_view text = fuzz::text_of(data, size);
  gres::begins_with_devices(text);
  std::vector<gres::Device> devices;
  if (!gres::read_devices(text, devices)) {
    fuzz::require(devices.empty(), "a list that is none has devices");
    return 0;
  }
  const std::string written = gres::write_devices(devices);
  std::vector<gres::Device> again;
  fuzz::require(gres::read_devices(written, again), "a list that was written cannot be read");
  fuzz::require(gres::write_devices(again) == written, "a list reads otherwise when it is written again");
  fuzz::require(gres::begins_with_devices("size" + written), "a list that was written is not known as one");
  return 0;
}
