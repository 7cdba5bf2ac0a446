// SPDX-License-Identifier: Apache-2.0
// Memory in stream order: which freed blocks of a pool may be given out again, and to whom.
//
// A stream takes back at once what it freed itself, since its later work runs after its earlier work. Others
// get it when the GPU has come past the place of the free, its fence. Blocks are cut out of chunks; a chunk
// without a block in use can leave the pool.
//
// Pure: knows addresses and fences, touches no memory. Not thread-safe.
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

// A stream for as long as it lives; a later stream has another number.
struct StreamId {
  std::uint64_t value = 0;
  auto operator<=>(const StreamId&) const = default;
};

// A place in a stream. Places of one stream are passed in the order in which they were made.
class Fence {
 public:
  virtual ~Fence() = default;
  // Whether the GPU has done all that was submitted before. Never waits.
  virtual bool passed() = 0;
};
using FencePtr = std::shared_ptr<Fence>;

class StreamPool {
 public:
  // A block of at least `size` > 0 bytes that `stream` may use from its next work on. nullopt: no chunk has
  // one.
  std::optional<CUdeviceptr> take(Bytes size, StreamId stream);
  // The chunk is free but for a first block of `first` bytes at its base, which is taken.
  void add_chunk(CUdeviceptr base, Bytes size, Bytes first);
  // Frees a block in the order of `stream`, at the place of `fence`; null: no work uses it any more. False:
  // it is no block in use.
  bool give(CUdeviceptr block, StreamId stream, FencePtr fence);
  // Looks which fences have been passed. True: all have.
  bool settle();

  struct Chunk {
    CUdeviceptr base = 0;
    Bytes size;
  };
  // Takes unused chunks out of the pool, as long as it holds more than `keep` bytes.
  std::vector<Chunk> release(Bytes keep);
  // How large the next chunk should be, of which `size` bytes are wanted now: roomy where the pool is large
  // already, a multiple of `unit`.
  Bytes next_chunk(Bytes size, Bytes unit) const;

  // The block in use that `address` lies in, with the size that was asked for.
  struct Block {
    CUdeviceptr base = 0;
    Bytes size;
  };
  std::optional<Block> find(CUdeviceptr address) const;

  Bytes reserved() const { return packing_.total(); }
  Bytes used() const { return used_; }
  // The most there was of it since the last reset.
  Bytes reserved_high() const { return reserved_high_; }
  Bytes used_high() const { return used_high_; }
  void reset_reserved_high() { reserved_high_ = reserved(); }
  void reset_used_high() { used_high_ = used_; }

 private:
  // Freed blocks of one stream whose fence has not been seen passed. They count as taken in packing_.
  struct Freed {
    CUdeviceptr base = 0;
    Bytes size;
    FencePtr fence;
  };
  struct Queue {
    std::map<std::uint64_t, Freed> by_age;                      // by a count of frees
    std::set<std::pair<std::uint64_t, std::uint64_t>> by_size;  // (size, age)
  };

  CUdeviceptr take_from(Queue& queue, std::uint64_t age, Bytes size);
  void use(CUdeviceptr base, Bytes size);

  Packing packing_;
  std::map<CUdeviceptr, Bytes> chunks_;
  std::map<CUdeviceptr, Bytes> blocks_;  // in use, as large as was asked for
  std::map<StreamId, Queue> freed_;
  std::uint64_t frees_ = 0;
  Bytes used_;
  Bytes used_high_;
  Bytes reserved_high_;
};

}  // namespace sharedgpu
