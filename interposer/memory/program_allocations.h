// SPDX-License-Identifier: Apache-2.0
// The memory that the program has created itself (cuMemCreate): ranges with a reference count, and the
// program's mappings of them. The base address of a range identifies the range. The program never accesses
// memory at this address, but only at the addresses of its mappings. Guarded by SwapCommon::mutex.
#pragma once

#include <cuda.h>

#include <map>
#include <memory>
#include <optional>

#include "interposer/memory/handle.h"
#include "interposer/memory/program_memory.h"

namespace sharedgpu {

class ProgramAllocations {
 public:
  using Id = ProgramMemory::Id;
  struct Made {
    Range* range = nullptr;
    std::unique_ptr<const CUmemAllocationProp> kind;
    unsigned references = 1;
    unsigned mappings = 0;
    bool unused() const { return references == 0 && mappings == 0; }
  };
  using All = std::map<Id, Made>;

  void add(Made made);
  // Returns null if `id` is not a handle of the interposer.
  Made* find(Id id);
  const Made* find(Id id) const;
  // take_out() removes an entry, and put_back() adds it again.
  All::node_type take_out(Id id) { return made_.extract(id); }
  void put_back(All::node_type made) { made_.insert(std::move(made)); }

  void map(CUdeviceptr address, Id id);
  void unmap(CUdeviceptr address);
  struct Mapping {
    CUdeviceptr address = 0;
    Id id = 0;
    Range* range = nullptr;
  };
  // mapping_at() returns the mapping that contains `address`; next() returns the first mapping that overlaps
  // [address, address + size).
  std::optional<Mapping> mapping_at(CUdeviceptr address) const;
  std::optional<Mapping> next(CUdeviceptr address, Bytes size) const;
  // The mapping that begins at `address`.
  std::optional<Mapping> mapping_of(CUdeviceptr address) const;

  // Returns the range that contains the `size` bytes at `address`, and the position of these bytes in the
  // range. `address` may lie in the range itself or in a mapping of the whole range.
  struct Under {
    Range* range = nullptr;   // null if the addresses lie in no range
    CUdeviceptr address = 0;  // the address of the bytes within `range`
  };
  Under under(CUdeviceptr address, Bytes size) const;

 private:
  Mapping entry(std::map<CUdeviceptr, Id>::const_iterator mapping) const;

  All made_;
  std::map<CUdeviceptr, Id> mappings_;
};

}  // namespace sharedgpu
