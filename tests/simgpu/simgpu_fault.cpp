// SPDX-License-Identifier: Apache-2.0
// Injects a fault into a simulated device: simgpu-fault STATE WHAT.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "tests/simgpu/settings.h"
#include "tests/simgpu/shared_device.h"

using namespace sharedgpu;
using namespace sharedgpu::simgpu;

namespace {

// The values of nvmlEventType...
constexpr std::uint64_t kDoubleBitEccError = 0x2;
constexpr std::uint64_t kXid = 0x8;

std::optional<Presence> presence_of(std::string_view word) {
  if (word == "lost") return Presence::lost;
  if (word == "absent") return Presence::absent;
  if (word == "present") return Presence::present;
  if (word == "unusable") return Presence::unusable;
  return std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 2 ? argv[2] : "";
  const auto presence = presence_of(what);
  const bool is_xid = argc == 4 && what == "xid";
  const bool is_known = argc == 3 && (presence || what == "ecc");
  if (!is_xid && !is_known) {
    std::fprintf(stderr, "usage: simgpu-fault STATE lost|absent|present|unusable|ecc|xid NUMBER\n");
    return 2;
  }
  Settings settings;
  std::string problem;
  SharedDevice* device = nullptr;
  if (read_settings(settings, problem)) device = SharedDevice::open(argv[1], &settings.memory, problem);
  if (device == nullptr) {
    std::fprintf(stderr, "simgpu-fault: %s\n", problem.c_str());
    return 1;
  }
  if (presence) device->set_presence(*presence);
  if (what == "ecc") device->report({.type = kDoubleBitEccError, .data = 0});
  if (is_xid) device->report({.type = kXid, .data = std::strtoull(argv[3], nullptr, 10)});
  return 0;
}
