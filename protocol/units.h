// SPDX-License-Identifier: Apache-2.0
// The quantities that the parts of sharedgpu exchange. Each quantity has a type of its own, so a byte count
// cannot be used as a time, or a tenant's number as a session's number.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace sharedgpu {

// A number of bytes. The result of operator- must not be negative; if it could be negative, use minus().
struct Bytes {
  std::uint64_t count = 0;

  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes& operator+=(Bytes other) {
    count += other.count;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes other) {
    count -= other.count;
    return *this;
  }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
};

// a - b, or zero if b is larger.
constexpr Bytes minus(Bytes a, Bytes b) { return a > b ? a - b : Bytes{}; }

constexpr Bytes kibibytes(std::uint64_t n) { return {n << 10}; }
constexpr Bytes mebibytes(std::uint64_t n) { return {n << 20}; }
constexpr Bytes gibibytes(std::uint64_t n) { return {n << 30}; }

// Durations, and points in time by CLOCK_BOOTTIME.
using Nanoseconds = std::chrono::nanoseconds;

// Converts seconds to nanoseconds. A time that Nanoseconds cannot hold becomes the largest value. `seconds`
// must not be negative.
constexpr Nanoseconds from_seconds(double seconds) {
  constexpr std::chrono::duration<double> kMost = Nanoseconds::max();
  const std::chrono::duration<double> time(seconds);
  return time < kMost ? std::chrono::duration_cast<Nanoseconds>(time) : Nanoseconds::max();
}

// Identifiers, each kind with its own type; zero means none. They stay valid across restarts of the arbiter,
// but not of the host.
template <class Tag>
struct Id {
  std::uint64_t value = 0;
  constexpr auto operator<=>(const Id&) const = default;
  explicit constexpr operator bool() const { return value != 0; }
};
using TenantId = Id<struct TenantTag>;    // a tenant: one job on one node, with all its processes
using SessionId = Id<struct SessionTag>;  // a session: one process of a tenant on one GPU
using Epoch = Id<struct EpochTag>;        // number of a tenant's turn; never decreases

// A GPU by its UUID, as cuDeviceGetUuid and NVML give it.
struct GpuUuid {
  std::uint8_t bytes[16] = {};
  constexpr auto operator<=>(const GpuUuid&) const = default;
};

}  // namespace sharedgpu

template <class Tag>
struct std::hash<sharedgpu::Id<Tag>> {
  std::size_t operator()(sharedgpu::Id<Tag> id) const noexcept { return static_cast<std::size_t>(id.value); }
};
