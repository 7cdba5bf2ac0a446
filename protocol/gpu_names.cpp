// SPDX-License-Identifier: Apache-2.0
#include "protocol/gpu_names.h"

#include <algorithm>
#include <charconv>

#include "protocol/split.h"

namespace sharedgpu {

std::string format_gpu(const GpuUuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid.bytes[i] >> 4];
    text += kDigits[uuid.bytes[i] & 15];
  }
  return text;
}

bool parse_gpu(std::string_view text, GpuUuid& uuid) {
  if (text.substr(0, 4) != "GPU-") return false;
  std::string hex;
  for (char c : text.substr(4))
    if (c != '-') hex += c;
  if (hex.size() != 2 * sizeof uuid.bytes) return false;
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    const char* digits = hex.data() + 2 * i;
    auto [rest, error] = std::from_chars(digits, digits + 2, uuid.bytes[i], 16);
    if (error != std::errc{} || rest != digits + 2) return false;
  }
  return true;
}

std::string format_gpus(const GpuList& gpus) {
  std::string text;
  for (std::uint32_t i = 0; i < std::min(gpus.count, GpuList::kMost); ++i)
    text += (i == 0 ? "" : ",") + format_gpu(gpus.gpu[i]);
  return text;
}

DeviceSet parse_devices(std::string_view text) {
  DeviceSet devices;
  for (std::string_view word : split(text, ',')) {
    const auto minor = parse_number<unsigned>(word);
    if (!minor || *minor >= 64) return {};
    devices.bits |= std::uint64_t{1} << *minor;
  }
  return devices;
}

std::string shortfall(const GpuList& gpus, unsigned wanted) {
  if (gpus.count == 0 || gpus.count >= wanted) return {};
  const std::string got = std::to_string(gpus.count) + (gpus.count == 1 ? " GPU" : " GPUs");
  if (gpus.known < wanted)
    return "this node has " + std::to_string(gpus.known) + "; the job runs with " + got;
  return "the job was given " + got + " when its first step on this node began, and keeps them";
}

}  // namespace sharedgpu
