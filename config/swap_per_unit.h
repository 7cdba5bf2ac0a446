// SPDX-License-Identifier: Apache-2.0
// The host memory that a job gets for each of its units, in addition to the memory that the job requests
// itself. SwapPerUnit= and GpuMemory= in sharedgpu.conf state it. Both keys may have a value for each type of
// unit, that is, for each type of GRES sharedgpu in slurm.conf.
//
// Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu {

// A size, or `auto`, for each type of unit: "10GiB", "a100:10GiB,h100:auto". Types are compared without
// regard to case, as in Slurm.
struct TypedSizes {
  struct Entry {
    std::string type;           // empty: the entry is for all types that no other entry names
    std::optional<Bytes> size;  // nullopt: auto
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries;  // empty: no size is stated
  bool operator==(const TypedSizes&) const = default;

  // Returns the entry that names `type`, or else the entry for all other types, or else null.
  const Entry* find(std::string_view type) const;
  // Returns the size if the only entry is a size, not `auto`, for all types; else nullopt.
  std::optional<Bytes> common() const;
};

// Returns nullopt if `text` is not a list of sizes, each with an optional type, or if it names a type twice.
// `with_auto`: `auto` is accepted in place of a size.
std::optional<TypedSizes> parse_typed_sizes(std::string_view text, bool with_auto);
// Writes text that parse_typed_sizes() reads, each size in its largest whole unit, such as "10GiB". Returns
// an empty text if there are no entries.
std::string format_typed_sizes(const TypedSizes& sizes);

// The host memory of one unit.
class UnitMemory {
 public:
  // `gpu_memory`: the memory of one GPU of each type, used for entries of `per_unit` that are `auto`. The
  // size of a unit of a type with `auto` is the memory of a GPU of this type divided by `units_per_gpu`,
  // rounded up.
  UnitMemory(TypedSizes per_unit, TypedSizes gpu_memory, std::uint32_t units_per_gpu);

  // The host memory of a unit of `type`; nullopt if no size is stated for the type, or if it is `auto` and
  // the memory of such GPUs is unknown. A request without a type (`type` is empty) may get units of any type,
  // so the result is the largest known size.
  std::optional<Bytes> of(std::string_view type) const;

  // Returns the reason why the size of an `auto` entry is unknown; an empty text if all sizes are known.
  std::string problem() const;

 private:
  std::optional<Bytes> size_of(const TypedSizes::Entry& entry) const;

  TypedSizes per_unit_;
  TypedSizes gpu_memory_;
  std::uint32_t units_per_gpu_;
};

}  // namespace sharedgpu
