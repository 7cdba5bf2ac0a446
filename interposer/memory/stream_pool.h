// SPDX-License-Identifier: Apache-2.0
// Memory in stream order: decides which freed blocks of a pool may be reused, and by which stream.
//
// A stream can reuse at once what it has freed itself, since its later work runs after its earlier work.
// Other streams get the block once the GPU has passed the fence of the free. Blocks are cut out of chunks; a
// chunk without a block in use can leave the pool.
//
// Pure: handles addresses and fences, touches no memory. Not thread-safe.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "interposer/memory/packing.h"

namespace sharedgpu {

// The number of a stream, which is never reused for a later stream.
struct StreamId {
  std::uint64_t value = 0;
  auto operator<=>(const StreamId&) const = default;
};

// A position in a stream. Fences of one stream pass in the order in which they were made.
class Fence {
 public:
  virtual ~Fence() = default;
  // Returns true if the GPU has done all work that was submitted before the fence. Does not wait.
  virtual bool passed() = 0;
};
using FencePtr = std::shared_ptr<Fence>;

class StreamPool {
 public:
  // Takes a block of at least `size` > 0 bytes that `stream` may use from its next work on; nullopt if no
  // chunk has one.
  std::optional<CUdeviceptr> take(Bytes size, StreamId stream);
  // Adds a chunk with a block of `first` bytes in use at its base; the rest is free.
  void add_chunk(CUdeviceptr base, Bytes size, Bytes first);
  // Frees a block in the order of `stream`, at `fence`. `fence` is null if no work uses the block. Returns
  // false if `block` is not a block in use.
  bool give(CUdeviceptr block, StreamId stream, FencePtr fence);
  // Collects the fences that have passed. Returns true if all fences have passed.
  bool settle();

  struct Chunk {
    CUdeviceptr base = 0;
    Bytes size;
  };
  // Takes unused chunks out of the pool while it holds more than `keep` bytes.
  std::vector<Chunk> release(Bytes keep);
  // The size of the next chunk, of which `size` bytes are needed now: larger if the pool is already large,
  // and a multiple of `unit`.
  Bytes next_chunk(Bytes size, Bytes unit) const;

  // The block in use that `address` lies in, with the requested size.
  struct Block {
    CUdeviceptr base = 0;
    Bytes size;
  };
  std::optional<Block> find(CUdeviceptr address) const;

  Bytes reserved() const { return packing_.total(); }
  Bytes used() const { return used_; }
  // The maxima of reserved() and used() since the last reset.
  Bytes reserved_high() const { return reserved_high_; }
  Bytes used_high() const { return used_high_; }
  void reset_reserved_high() { reserved_high_ = reserved(); }
  void reset_used_high() { used_high_ = used_; }

 private:
  // Freed blocks of one stream whose fence is not known to have passed. These blocks count as taken in
  // packing_.
  struct Freed {
    CUdeviceptr base = 0;
    Bytes size;
    FencePtr fence;
  };
  struct Queue {
    std::map<std::uint64_t, Freed> by_age;                      // the key counts frees
    std::set<std::pair<std::uint64_t, std::uint64_t>> by_size;  // (size, age)
  };

  CUdeviceptr take_from(Queue& queue, std::uint64_t age, Bytes size);
  void use(CUdeviceptr base, Bytes size);

  Packing packing_;
  std::map<CUdeviceptr, Bytes> chunks_;
  std::map<CUdeviceptr, Bytes> blocks_;  // blocks in use, each with its requested size
  std::map<StreamId, Queue> freed_;
  std::uint64_t frees_ = 0;
  Bytes used_;
  Bytes used_high_;
  Bytes reserved_high_;
};

}  // namespace sharedgpu
