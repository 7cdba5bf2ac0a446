// SPDX-License-Identifier: Apache-2.0
// cuMemAlloc's memory. A large block has physical memory of its own; small blocks share pieces of 2 MiB.
//
// Memory that is reused without having been returned to the device keeps its contents, as on a GPU. A heap
// may keep large blocks that are free. Safe from any thread.
#pragma once

#include <map>
#include <mutex>
#include <optional>

#include "tests/simgpu/address_space.h"

namespace sharedgpu::simgpu {

class Heap {
 public:
  Heap(AddressSpace& space, PhysicalStore& store) : space_(space), store_(store) {}
  ~Heap() { clear(); }
  void clear();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Throws CUDA_ERROR_OUT_OF_MEMORY.
  Address allocate(Bytes size);
  // Returns false if `begin` is no allocation of this heap.
  bool free(Address begin);
  // The allocation that contains `at`, with the requested size.
  std::optional<Range> find(Address at) const;
  // Sets the access of another device to all memory of the heap, including memory that is allocated later.
  void set_access(int device, Access access);
  // The heap keeps freed large blocks while reserved() is at most the threshold.
  void set_threshold(Bytes threshold);
  Bytes threshold() const;
  // Returns free memory to the device until reserved() is at most `keep`, or no more memory is free.
  void trim(Bytes keep);
  Bytes used() const;      // bytes that the program requested
  Bytes reserved() const;  // bytes taken from the device
  // The largest values of used() and reserved() since the last reset.
  Bytes used_high() const;
  Bytes reserved_high() const;
  void reset_used_high();
  void reset_reserved_high();

 private:
  struct Block {  // small allocations by offset, rounded up to kAlignment
    std::map<std::uint64_t, Bytes> parts;
  };
  std::optional<Address> fit(Address begin, const Block& block, Bytes size) const;
  Address take_from_device(Bytes size);
  void give_to_device(Address begin, Bytes size);
  Address take_large(Bytes size);
  void use(Address begin, Bytes size);
  void trim_locked(Bytes keep);

  AddressSpace& space_;
  PhysicalStore& store_;
  mutable std::mutex mutex_;
  std::map<Address, Bytes> allocations_;
  std::map<Address, Block> blocks_;
  std::map<int, Access> others_;
  std::map<Address, Bytes> kept_;  // large blocks that are free
  Bytes threshold_;
  Bytes used_;
  Bytes used_high_;
  Bytes reserved_;
  Bytes reserved_high_;
};

}  // namespace sharedgpu::simgpu
