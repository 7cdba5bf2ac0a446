// SPDX-License-Identifier: Apache-2.0
// Memory that belongs to graphs. The addresses are fixed when an allocation node is created. The first launch
// allocates the physical memory, which stays, in use or not, until trim() frees it.
//
// Thread-safe; failures are thrown as Error.
#pragma once

#include <cuda.h>

#include <map>
#include <memory>
#include <mutex>

#include "tests/simgpu/address_space.h"
#include "tests/simgpu/stream.h"

namespace sharedgpu::simgpu {

// The work that begins the use of graph memory (an allocation node), and the work that ends it (a free node,
// or a free in a stream).
Work graph_allocation(Address begin);
Work graph_free(Address begin);

class GraphMemory {
 public:
  explicit GraphMemory(AddressSpace& space) : space_(space) {}

  // Reserves addresses for an allocation node of `device`, with memory from `store`.
  Address reserve(Bytes size, PhysicalStore& store, int device);
  bool knows(Address begin) const;
  bool covers(const Range& range) const;
  // Called before a launch: allocates physical memory for the block at `begin`, unless the block has it
  // already. Throws CUDA_ERROR_OUT_OF_MEMORY.
  void back(Address begin);
  // Called when the GPU reaches an allocation node or a free node. Return false if there is no memory at
  // `begin`, or if the memory is in use already (begin_use) or not in use (end_use).
  bool begin_use(Address begin);
  bool end_use(Address begin);
  // Frees physical memory that is not in use.
  void trim(int device);

  struct Statistics {
    Bytes used, used_high, reserved, reserved_high;
  };
  Statistics statistics(int device);

 private:
  struct Block {
    Bytes size;
    PhysicalStore* store = nullptr;
    int device = 0;
    bool backed = false;
    bool used = false;
  };
  AddressSpace& space_;
  mutable std::mutex mutex_;
  std::map<Address, Block> blocks_;
  std::map<int, Statistics> statistics_;  // the key is the number of the device
};

}  // namespace sharedgpu::simgpu
