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
  std::vector<Entry> entries;  // empty: no size is stated

  // Returns the entry of `type`, or else the entry of all other types, or else null.
  const Entry* find(std::string_view type) const;
  // Returns the size if it is the same for all types, else nullopt.
  std::optional<Bytes> common() const;
};

// Returns nullopt if `text` is not a list of sizes, each with an optional type, or if it names a type twice.
// `with_auto`: the word auto may stand for a size.
std::optional<TypedSizes> parse_typed_sizes(std::string_view text, bool with_auto);
// Writes text that parse_typed_sizes() reads, with sizes in bytes. Returns an empty text if there are no
// entries.
std::string format_typed_sizes(const TypedSizes& sizes);

// The host memory of one unit.
class UnitMemory {
 public:
  // `gpu_memory`: the memory of one GPU of each type. It is used only for entries that are auto: a unit then
  // stands for the memory of its GPU divided by `units_per_gpu`, rounded up.
  UnitMemory(TypedSizes per_unit, TypedSizes gpu_memory, std::uint32_t units_per_gpu);

  // The host memory of a unit of `type`; nullopt if no size is stated for the type. A request without a type
  // (empty) may get a unit of any type, so it stands for the largest size.
  std::optional<Bytes> of(std::string_view type) const;

  // Returns an empty text, or the reason for which an entry that is auto has no size.
  std::string problem() const;

 private:
  std::optional<Bytes> size_of(const TypedSizes::Entry& entry) const;

  TypedSizes per_unit_;
  TypedSizes gpu_memory_;
  std::uint32_t units_per_gpu_;
};

}  // namespace sharedgpu
