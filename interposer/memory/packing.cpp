// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/packing.h"

#include <iterator>

namespace sharedgpu {

void Packing::add_region(CUdeviceptr base, Bytes size, Bytes first) {
  const auto span = spans_.emplace(base, Span{size, base}).first;
  set_free(span);
  if (first.count != 0) cut(span, round_up(first));
  total_ += size;
}

void Packing::remove_region(CUdeviceptr base) {
  const auto span = spans_.find(base);
  total_ -= span->second.size;
  set_taken(span);
  spans_.erase(span);
}

std::optional<CUdeviceptr> Packing::take(Bytes size) {
  const Bytes rounded = round_up(size);
  const auto place = free_.lower_bound({rounded.count, 0});
  if (rounded < size || place == free_.end()) return std::nullopt;
  const CUdeviceptr address = place->second;
  cut(spans_.find(address), rounded);
  return address;
}

// Marks the first `size` bytes of a free span as taken; the rest becomes a free span of its own.
void Packing::cut(Spans::iterator span, Bytes size) {
  const Bytes rest = span->second.size - size;
  set_taken(span);
  span->second.size = size;
  if (rest.count == 0) return;
  set_free(spans_.emplace(span->first + size.count, Span{rest, span->second.region}).first);
}

CUdeviceptr Packing::split(CUdeviceptr block, Bytes size) {
  Span& first = spans_.find(block)->second;
  const Bytes kept = round_up(size);
  const CUdeviceptr second = block + kept.count;
  spans_.emplace(second, Span{first.size - kept, first.region, false});
  first.size = kept;
  return second;
}

CUdeviceptr Packing::give(CUdeviceptr block) {
  auto span = spans_.find(block);
  const CUdeviceptr region = span->second.region;
  const auto after = std::next(span);
  if (after != spans_.end() && after->second.region == region && after->second.free) {
    set_taken(after);
    span->second.size += after->second.size;
    spans_.erase(after);
  }
  if (span != spans_.begin()) {
    const auto before = std::prev(span);
    if (before->second.region == region && before->second.free) {
      set_taken(before);
      before->second.size += span->second.size;
      spans_.erase(span);
      span = before;
    }
  }
  set_free(span);
  return region;
}

bool Packing::is_empty(CUdeviceptr region) const {
  const auto span = spans_.find(region);
  const auto after = std::next(span);
  return span->second.free && (after == spans_.end() || after->second.region != region);
}

void Packing::set_free(Spans::iterator span) {
  span->second.free = true;
  free_.emplace(span->second.size.count, span->first);
}

// Marks the span as taken, and removes it from free_, so the caller may then change the span's size.
void Packing::set_taken(Spans::iterator span) {
  span->second.free = false;
  free_.erase({span->second.size.count, span->first});
}

}  // namespace sharedgpu
