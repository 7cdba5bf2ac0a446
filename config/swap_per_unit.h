// SPDX-License-Identifier: Apache-2.0
// The host memory that each unit of a job stands for: SwapPerUnit= and GpuMemory= of sharedgpu.conf. Both may
// differ between the types of units, which are the types of GRES sharedgpu in slurm.conf.
//
// Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu {

// "10GiB", "a100:10GiB,h100:auto": a size, or automatic, for each type of unit. Slurm's types are compared
// without regard to case.
struct TypedSizes {
  struct Entry {
    std::string type;           // empty: all types that no other entry names
    std::optional<Bytes> size;  // none: auto
  };
  std::vector<Entry> entries;  // empty: nothing is stated

  // The entry of `type`, else the one of all other types, else null.
  const Entry* find(std::string_view type) const;
  // The size, if there is one and the same for all types.
  std::optional<Bytes> common() const;
};

// Returns nullopt if `text` is not a list of sizes, each with an optional type, or if it names a type twice.
// `with_auto`: the word auto may stand for a size.
std::optional<TypedSizes> parse_typed_sizes(std::string_view text, bool with_auto);
// As parse_typed_sizes() reads it, sizes in bytes; empty if nothing is stated.
std::string format_typed_sizes(const TypedSizes& sizes);

// The host memory of one unit.
class UnitMemory {
 public:
  // `gpu_memory`: the memory of one GPU of each type. It is only used for entries that are auto: a unit
  // stands for that memory divided by `units_per_gpu`, rounded up.
  UnitMemory(TypedSizes per_unit, TypedSizes gpu_memory, std::uint32_t units_per_gpu);

  // The host memory of a unit of `type`; nullopt if nothing is stated for it. A request without a type
  // (empty) may get a unit of any type: the largest.
  std::optional<Bytes> of(std::string_view type) const;

  // Empty, or the reason why an entry that is auto has no size.
  std::string problem() const;

 private:
  std::optional<Bytes> size_of(const TypedSizes::Entry& entry) const;

  TypedSizes per_unit_;
  TypedSizes gpu_memory_;
  std::uint32_t units_per_gpu_;
};

}  // namespace sharedgpu
