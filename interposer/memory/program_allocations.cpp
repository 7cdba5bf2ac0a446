// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/program_allocations.h"

#include <iterator>
#include <utility>

namespace sharedgpu {

void ProgramAllocations::add(Made made) {
  const Id id = made.range->base;
  made_.emplace(id, std::move(made));
}

ProgramAllocations::Made* ProgramAllocations::find(Id id) {
  const auto found = made_.find(id);
  return found == made_.end() ? nullptr : &found->second;
}

const ProgramAllocations::Made* ProgramAllocations::find(Id id) const {
  const auto found = made_.find(id);
  return found == made_.end() ? nullptr : &found->second;
}

void ProgramAllocations::map(CUdeviceptr address, Id id) {
  mappings_.emplace(address, id);
  ++find(id)->mappings;
}

void ProgramAllocations::unmap(CUdeviceptr address) {
  const auto mapping = mappings_.find(address);
  --find(mapping->second)->mappings;
  mappings_.erase(mapping);
}

ProgramAllocations::Mapping ProgramAllocations::entry(
    std::map<CUdeviceptr, Id>::const_iterator mapping) const {
  return {mapping->first, mapping->second, find(mapping->second)->range};
}

std::optional<ProgramAllocations::Mapping> ProgramAllocations::mapping_at(CUdeviceptr address) const {
  const auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return std::nullopt;
  const Mapping found = entry(std::prev(after));
  if (address - found.address >= found.range->size.count) return std::nullopt;
  return found;
}

std::optional<ProgramAllocations::Mapping> ProgramAllocations::next(CUdeviceptr address, Bytes size) const {
  if (const auto here = mapping_at(address)) return here;
  const auto after = mappings_.lower_bound(address);
  if (after == mappings_.end() || after->first >= address + size.count) return std::nullopt;
  return entry(after);
}

std::optional<ProgramAllocations::Mapping> ProgramAllocations::mapping_of(CUdeviceptr address) const {
  const auto found = mappings_.find(address);
  if (found == mappings_.end()) return std::nullopt;
  return entry(found);
}

ProgramAllocations::Under ProgramAllocations::under(CUdeviceptr address, Bytes size) const {
  if (const auto mapping = mapping_at(address)) {
    const auto& [base, id, range] = *mapping;
    if (!lies_within(address, size, base, range->size)) return {};
    return {range, range->base + (address - base)};
  }
  const auto made = made_.upper_bound(address);
  if (made == made_.begin()) return {};
  const auto& [base, found] = *std::prev(made);
  return lies_within(address, size, base, found.range->size) ? Under{found.range, address} : Under{};
}

}  // namespace sharedgpu
