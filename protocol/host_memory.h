// SPDX-License-Identifier: Apache-2.0
// Parses the Linux kernel's files about host memory: the limits and usage of memory cgroups, and the
// machine's memory. From these files, the interposer decides how much host memory to allocate, and the
// arbiter computes how much the interposer could allocate. Pure; any thread; no exceptions.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

#include "protocol/units.h"

namespace sharedgpu::host_memory {

// Removes the first line from `text`, and returns the line.
inline std::string_view next_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

inline std::optional<std::uint64_t> number(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

// Returns the number after `key` in the first line that begins with `key`, such as "inactive_file 4096" or
// "MemTotal: 16 kB"; 0 if there is no such line or no number in it.
inline std::uint64_t field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    if (line.substr(0, key.size()) == key) return number(line.substr(key.size())).value_or(0);
  }
  return 0;
}

// The cgroup version (v1 or v2) of a hierarchy.
enum class Version : std::uint8_t { v1, v2 };

// The names of a group's files. memory.high counts as a limit. Above this value, the Linux kernel slows the
// job down very much until memory is reclaimed, and pinned memory cannot be reclaimed.
struct Files {
  const char* limits[2];  // the second name is null in version 1, which has only one limit file
  const char* usage;
};
inline constexpr Files files_of(Version version) {
  return version == Version::v2 ? Files{{"/memory.max", "/memory.high"}, "/memory.current"}
                                : Files{{"/memory.limit_in_bytes", nullptr}, "/memory.usage_in_bytes"};
}

// A limit file holds a number or, if there is no limit, "max" (version 2) or a number near 2^63 (version 1).
// Returns nullopt if there is no limit or the text is not understood.
inline std::optional<Bytes> limit_in(std::string_view text) {
  const std::optional<std::uint64_t> value = number(text);
  if (!value || *value >= (1ull << 62)) return std::nullopt;
  return Bytes{*value};
}

// Returns the lower of two limits, each of which may be missing; nullopt if both are missing.
inline std::optional<Bytes> lower(std::optional<Bytes> a, std::optional<Bytes> b) {
  return a && b ? std::min(a, b) : a ? a : b;
}

// Converts a limit in a message, in which zero means "no limit".
inline std::optional<Bytes> stated(Bytes limit) {
  return limit == Bytes{} ? std::nullopt : std::optional(limit);
}

// The part of a group's memory that cannot be reclaimed, from the texts of its usage file and memory.stat.
// The Linux kernel also charges page cache to the group, so the usage of a job that reads large files is
// always near its limit. This function subtracts page cache, since the kernel reclaims it on demand.
inline Bytes used_in(Version version, std::string_view usage, std::string_view stat) {
  const bool v2 = version == Version::v2;
  const Bytes cache{field(stat, v2 ? "inactive_file " : "total_inactive_file ") +
                    field(stat, v2 ? "active_file " : "total_active_file ")};
  return minus({number(usage).value_or(0)}, cache);
}

// The machine's memory, from the text of /proc/meminfo.
inline Bytes total_in(std::string_view meminfo) { return kibibytes(field(meminfo, "MemTotal:")); }
inline Bytes available_in(std::string_view meminfo) { return kibibytes(field(meminfo, "MemAvailable:")); }

// Returns true if `controllers`, the comma-separated list in a line of /proc/PID/cgroup, includes `wanted`.
inline bool lists(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    const std::size_t end = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, end) == wanted) return true;
    controllers.remove_prefix(std::min(end + 1, controllers.size()));
  }
  return false;
}

// The safety margin of a limit: the part that swap leaves free for further allocations of the job itself.
inline Bytes margin(Bytes limit) {
  return {std::clamp(limit.count / 32, mebibytes(32).count, gibibytes(1).count)};
}

// The smallest limit that leaves `bytes` after its margin is subtracted. The result may be one byte too high.
inline Bytes limit_for(Bytes bytes) {
  const Bytes with_part = bytes + Bytes{bytes.count / 31 + (bytes.count % 31 == 0 ? 0 : 1)};
  return std::max(bytes + mebibytes(32), std::min(with_part, bytes + gibibytes(1)));
}

// The host memory that may still be allocated for swap if `used` bytes are in use under `limit`.
inline Bytes room(Bytes limit, Bytes used) { return minus(minus(limit, used), margin(limit)); }

}  // namespace sharedgpu::host_memory
