// SPDX-License-Identifier: Apache-2.0
// The reserved address ranges, and the program's blocks in these ranges. Guarded by SwapCommon::mutex.
#pragma once

#include <cuda.h>

#include <map>
#include <optional>
#include <vector>

#include "interposer/memory/handle.h"
#include "interposer/memory/memory.h"
#include "interposer/memory/packing.h"

namespace sharedgpu {

struct Block {
  Bytes size;  // the size that the program requested
  Range* range = nullptr;
  bool dying = false;  // a thread is freeing the block now, or its free is deferred (swap_freeing.h)
};

class AddressSpace {
 public:
  using Ranges = std::map<CUdeviceptr, Range>;

  // Adds a range of reserved addresses, and divides it into handles of `handle_size`.
  Range& add(CUdeviceptr base, Bytes size, bool arena, CUcontext context, Bytes handle_size);
  void remove(const Range& range) { ranges_.erase(range.base); }
  Ranges& ranges() { return ranges_; }
  const Ranges& ranges() const { return ranges_; }
  // The handle that begins at this address; null if there is none any more.
  Handle* handle_at(CUdeviceptr address);

  // Adds the first block of a range, at the base of the range. A range that is not an arena gets no other
  // block.
  void add_block(Range& range, Bytes size);
  // Allocates a block of `size` bytes in an arena, and stores its address in `address`. Returns the arena's
  // range, or null if no arena has enough space.
  Range* take_from_arenas(CUdeviceptr* address, Bytes size);
  Bytes arenas() const { return packing_.total(); }

  // The block that begins at this address; null if none.
  Block* block(CUdeviceptr address);
  // The block that `address` lies in; nullopt if there is none, or the block is being freed.
  std::optional<AddressRange> find(CUdeviceptr address) const;
  // The range of the block that contains all of these addresses; null if there is none, or the block is being
  // freed.
  Range* find_whole(CUdeviceptr address, Bytes size) const;
  // Marks the block as being freed. After this call, no other thread frees or finds the block. Returns false
  // if the block is already marked, or there is no such block.
  bool condemn(CUdeviceptr address);
  void reprieve(CUdeviceptr address) { block(address)->dying = false; }
  // Removes a block from the block list without freeing its memory. Returns true if this was the last block
  // of its range. An empty range gets no new block until put_back() is called.
  bool take_out(CUdeviceptr address);
  void put_back(CUdeviceptr address, const Block& block);

  // take_whole() removes the entry of a block that has a range to itself, and the entry of this range.
  // put_back() adds both entries again. Neither function frees memory.
  struct Taken {
    std::map<CUdeviceptr, Block>::node_type block;
    Ranges::node_type range;
  };
  Taken take_whole(CUdeviceptr address) { return {blocks_.extract(address), ranges_.extract(address)}; }
  void put_back(Taken taken);

 private:
  Ranges ranges_;
  std::map<CUdeviceptr, Block> blocks_;
  Packing packing_;  // the blocks and the free space of all arenas
};

}  // namespace sharedgpu
