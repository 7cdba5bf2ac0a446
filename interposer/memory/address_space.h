// SPDX-License-Identifier: Apache-2.0
// The ranges of addresses that are reserved, and the blocks of the program in them. Guarded by its owner's
// lock.
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
  Bytes size;  // as the program asked for it
  Range* range = nullptr;
  bool dying = false;  // a thread is freeing it, or will after a capture
};

class AddressSpace {
 public:
  using Ranges = std::map<CUdeviceptr, Range>;

  // A reserved range, cut into handles.
  Range& add(CUdeviceptr base, Bytes size, bool arena, CUcontext context, Bytes handle_size);
  void remove(const Range& range) { ranges_.erase(range.base); }
  Ranges& ranges() { return ranges_; }
  const Ranges& ranges() const { return ranges_; }
  // The handle that begins at this address; null: it has been freed.
  Handle* handle_at(CUdeviceptr address);

  // The range is one block, or an arena with this block as its first.
  void add_block(Range& range, Bytes size);
  // A place for a block in an arena; null: there is none.
  Range* take_from_arenas(CUdeviceptr* address, Bytes size);
  Bytes arenas() const { return packing_.total(); }

  // The block that begins at this address; null: none.
  Block* block(CUdeviceptr address);
  // The living one that the address lies in.
  std::optional<AddressRange> find(CUdeviceptr address) const;
  // The range of the living block that has all of these addresses; null: there is none.
  Range* find_whole(CUdeviceptr address, Bytes size) const;
  // Marks the block: nobody else frees it from now on, or finds it. False: somebody does already, or there is
  // none.
  bool condemn(CUdeviceptr address);
  void reprieve(CUdeviceptr address) { block(address)->dying = false; }
  // Takes a block out. True if its range has none now; then none comes there, until it is put back.
  bool take_out(CUdeviceptr address);
  void put_back(CUdeviceptr address, const Block& block);

  // A block that has a range for itself, with that, out of here and back again.
  struct Taken {
    std::map<CUdeviceptr, Block>::node_type block;
    Ranges::node_type range;
  };
  Taken take_whole(CUdeviceptr address) { return {blocks_.extract(address), ranges_.extract(address)}; }
  void put_back(Taken taken);

 private:
  Ranges ranges_;
  std::map<CUdeviceptr, Block> blocks_;
  Packing packing_;  // of the arenas
};

}  // namespace sharedgpu
