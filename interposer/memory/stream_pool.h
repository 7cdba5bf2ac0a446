// SPDX-License-Identifier: Apache-2.0
// Memory in stream order: decides which freed blocks of a pool may be reused, and by which stream.
//
// A stream can at once reuse a block that it has freed itself, since its later work runs after its earlier
// work. Another stream gets the block only when the GPU has passed the fence that was made when the block was
// freed. Blocks are parts of chunks; a chunk can leave the pool if none of its blocks is in use or waits for
// a fence.
//
// Pure: computes with addresses and fences, and never touches memory. Not thread-safe.
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

// The number of a stream. No two streams ever have the same number.
struct StreamId {
  std::uint64_t value = 0;
  auto operator<=>(const StreamId&) const = default;
};

// A position in a stream. The GPU passes the fences of one stream in the order in which they were made.
class Fence {
 public:
  virtual ~Fence() = default;
  // Returns true if the GPU has done all work that was submitted before the fence. Does not wait.
  virtual bool passed() = 0;
};
using FencePtr = std::shared_ptr<Fence>;

class StreamPool {
 public:
  // Allocates a block of at least `size` > 0 bytes, which `stream` may use from its next work on; nullopt if
  // no chunk has such a block.
  std::optional<CUdeviceptr> take(Bytes size, StreamId stream);
  // Adds a chunk. The first `first` bytes of the chunk become a block in use, and the other bytes are free.
  void add_chunk(CUdeviceptr base, Bytes size, Bytes first);
  // Frees a block that work of `stream` may use until the GPU has passed `fence`. `fence` is null if no work
  // uses the block. Returns false if `block` is not a block in use.
  bool give(CUdeviceptr block, StreamId stream, FencePtr fence);
  // Makes freed blocks available to all streams if the GPU has passed their fences. Returns true if the GPU
  // has passed all fences.
  bool settle();

  struct Chunk {
    CUdeviceptr base = 0;
    Bytes size;
  };
  // Removes unused chunks from the pool while the pool holds more than `keep` bytes. Returns the removed
  // chunks; the caller frees them.
  std::vector<Chunk> release(Bytes keep);
  // Returns the size of the next chunk if `size` bytes are needed now: a multiple of `unit`, at least `size`,
  // and more than that if the pool is large.
  Bytes next_chunk(Bytes size, Bytes unit) const;

  // A block in use, with the size that was requested. find() returns the block that contains `address`.
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
  // A block that a stream has freed. The GPU may not have passed its fence yet. packing_ still counts the
  // block as taken.
  struct Freed {
    CUdeviceptr base = 0;
    Bytes size;
    FencePtr fence;
  };
  struct Queue {
    std::map<std::uint64_t, Freed> by_age;                      // the key of a block is the number of the
                                                                // give() that freed it
    std::set<std::pair<std::uint64_t, std::uint64_t>> by_size;  // the blocks of by_age, each as (size, key
                                                                // in by_age)
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
