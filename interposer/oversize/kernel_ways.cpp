// SPDX-License-Identifier: Apache-2.0
#include "interposer/oversize/kernel_ways.h"

#include <chrono>

namespace sharedgpu {

namespace {

using namespace std::chrono_literals;

// Kernels read memory that is away with 51 GB/s and write it with 53 GB/s (measured on one H200). A kernel
// that also computes, or whose accesses are not in sequence, is slower.
constexpr double kBusBytesPerNanosecond = 40;
// A streaming kernel takes at most this many times the time of the bus. A matrix product with an operand of
// 128 MiB away takes 43 times as long: 143 ms, or 1.3 ms with the operand on the GPU (measured on one H200).
constexpr double kStreamFactor = 1.5;
// A launch takes this time even with few bytes.
constexpr Nanoseconds kLaunch = 100us;
// The time of an exchange: a handle of 64 MiB leaves and another one comes in (measured on one H200).
constexpr double kExchangeNanosecondsPerByte = 2.5e6 / static_cast<double>(mebibytes(64).count);

double nanoseconds(Nanoseconds time) { return static_cast<double>(time.count()); }
double count(Bytes bytes) { return static_cast<double>(bytes.count); }

bool is_streaming(Nanoseconds took, Bytes away) {
  return nanoseconds(took) <= kStreamFactor * count(away) / kBusBytesPerNanosecond + nanoseconds(kLaunch);
}

}  // namespace

Way KernelWays::way(Key key) const {
  const auto found = records_.find(key);
  if (found != records_.end()) return found->second.way;
  return records_.size() < kMostKeys ? Way::untried : Way::needs_gpu;
}

bool KernelWays::decided(Key key) const {
  const auto found = records_.find(key);
  if (found == records_.end()) return records_.size() >= kMostKeys;
  return found->second.final || found->second.way == Way::streams;
}

void KernelWays::ran_away(Key key, Nanoseconds took, Bytes away) {
  Record* const record = away.count != 0 ? record_of(key) : nullptr;
  if (record == nullptr || record->final) return;
  if (is_streaming(took, away)) {
    if (record->way == Way::untried) record->way = Way::streams;
    return;
  }
  record->way = Way::needs_gpu;
  record->away = {took, away};
  decide(*record);
}

void KernelWays::ran_here(Key key, Nanoseconds took, Bytes bytes) {
  Record* const record = bytes.count != 0 ? record_of(key) : nullptr;
  if (record == nullptr || record->final) return;
  if (record->here.bytes.count == 0 || per_byte({took, bytes}) < per_byte(record->here))
    record->here = {took, bytes};
  decide(*record);
}

double KernelWays::per_byte(const Run& run) { return nanoseconds(run.took) / count(run.bytes); }

// Decides about a slow run by what an exchange before it would have cost and saved.
void KernelWays::decide(Record& record) {
  if (record.away.bytes.count == 0 || record.here.bytes.count == 0) return;
  const bool exchange_pays = per_byte(record.away) - per_byte(record.here) >= kExchangeNanosecondsPerByte;
  record.way = exchange_pays ? Way::needs_gpu : Way::streams;
  record.final = exchange_pays;
}

KernelWays::Record* KernelWays::record_of(Key key) {
  const auto found = records_.find(key);
  if (found != records_.end()) return &found->second;
  return records_.size() < kMostKeys ? &records_[key] : nullptr;
}

}  // namespace sharedgpu
