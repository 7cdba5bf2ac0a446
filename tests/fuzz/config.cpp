// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary text as sharedgpu.conf. The result is an error that names the file, or settings within
// their bounds.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "config/settings.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  Settings settings;
  std::string error = parse_settings({reinterpret_cast<const char*>(data), size}, "x.conf", settings);
  if (!error.empty() && error.rfind("x.conf:", 0) != 0) std::abort();
  if (settings.quantum < Nanoseconds{} || settings.units_per_gpu == 0 || settings.socket.empty())
    std::abort();
  for (const Section& section : settings.sections) {
    for (const std::uint32_t number : section.gpus.numbers)
      if (settings_of(settings, number, {}).quantum < Nanoseconds{}) std::abort();
    for (const std::string& name : section.names) {
      JobClass job;
      if (name.empty() || name.size() > JobClass::kLongest) std::abort();
      name.copy(job.partition, JobClass::kLongest);
      name.copy(job.qos, JobClass::kLongest);
      const Settings its = settings_of(settings, job);
      if (std::abs(its.priority) > kHighestPriority || its.max_request <= 0) std::abort();
    }
  }
  return 0;
}
