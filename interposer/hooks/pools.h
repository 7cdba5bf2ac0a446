// SPDX-License-Identifier: Apache-2.0
// The program's memory pools. Ordinary device pools get their memory from the swap or managed backend. All
// other pools are the driver's own. On a managed device, the memory that they keep counts as pinned. Examples
// are pools that can be shared with other processes, and all device pools with the native backend.
//
// Thread-safe.
#pragma once

#include <cuda.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "interposer/backlog/streams.h"
#include "interposer/hooks/kept.h"
#include "interposer/hooks/native.h"
#include "interposer/memory/memory.h"

namespace sharedgpu::hooks {

// A block of stream-ordered memory that the interposer has allocated.
struct Pooled {
  AddressRange range;
  CUmemoryPool pool = nullptr;
  CUdevice device = 0;
};

class Pools {
 public:
  enum class Kind {
    swapped,  // memory of the swap or managed backend
    pinned,   // the driver's memory, on a managed device
    other,    // not counted: memory of the host, another process or an unmanaged device
  };

  // Called when the program has created a pool.
  void created(CUmemoryPool pool, const CUmemPoolProps& properties);
  // Destroys a pool. `call` destroys the driver's pool, and fails for a default pool. Blocks that are in use
  // stay valid.
  template <class Call>
  CUresult destroy(CUmemoryPool handle, Call call) {
    const PoolPtr pool = leave_alone(handle);
    const CUresult result = call();
    if (pool != nullptr) decided(pool, result == CUDA_SUCCESS);
    tend();
    return result;
  }
  // The kind of a pool. If the pool is not known yet, it may be the default pool of `device`.
  Kind kind(CUmemoryPool pool, CUdevice device);
  // The device of a swapped pool; nullopt for any other pool.
  std::optional<CUdevice> device_of_swapped(CUmemoryPool pool);
  // Leaves future allocations from the pool to the driver.
  void leave_to_driver(CUmemoryPool pool);

  // Allocates a block of a swapped pool in stream order, as cuMemAllocFromPoolAsync does: work that is
  // submitted to the stream `place` from now on may use the block.
  CUresult allocate(CUdeviceptr* address, Bytes size, CUmemoryPool pool, const backlog::StreamPlace& place);
  // Returns true if the address lies in memory that a pool holds, in use or not.
  bool holds(CUdeviceptr address);
  std::optional<Pooled> find(CUdeviceptr address);
  // free() frees a block in the order of the stream `place`, as cuMemFreeAsync does; free_unused() frees a
  // block that no work uses.
  CUresult free(CUdeviceptr address, const backlog::StreamPlace& place);
  CUresult free_unused(CUdeviceptr address);

  // Allocates from a pinned pool by calling `call`, and counts the memory that the driver keeps for the pool.
  template <class Call>
  CUresult allocate_pinned(CUdeviceptr* address, Bytes size, CUmemoryPool pool, Call call) {
    Claim claim{.pool = nullptr, .size = size, .room = {}};
    CUresult refused = prepare(pool, claim);
    if (refused == CUDA_ERROR_OUT_OF_MEMORY) refused = prepare_again(pool, claim);
    if (refused != CUDA_SUCCESS) return refused;
    CUresult result = CUDA_SUCCESS;
    Patience patience;
    do result = call();
    while (claim.room != Bytes{} && claim.fits && patience.worth_another_try(result));
    allocated_pinned(result == CUDA_SUCCESS ? *address : 0, claim);
    return result;
  }
  // Frees memory that may belong to a pinned pool. `call` frees the memory in the driver.
  template <class Call>
  CUresult free_pinned(CUdeviceptr address, Call call) {
    const Block block = pinned_block(address);
    const CUresult result = call();
    if (block.pool != nullptr && result == CUDA_SUCCESS) freed_pinned(address, block);
    return result;
  }

  // Attributes of swapped pools. The driver keeps the attributes of all other pools.
  struct Statistics {
    Bytes reserved, reserved_high, used, used_high;
  };
  std::optional<Statistics> statistics(CUmemoryPool pool);
  void reset_reserved_high(CUmemoryPool pool);
  void reset_used_high(CUmemoryPool pool);

  // Releases memory that the GPU does not use, as long as the pool keeps more than `keep` bytes.
  void trim(CUmemoryPool pool, Bytes keep);
  // Trims each pool to its release threshold, as the driver does when the program synchronizes. Does nothing
  // during a capture. Sends no request to the arbiter.
  void tend();
  // Makes each pool release all of its unused memory. Called when memory is short. Returns false if there was
  // nothing to release.
  bool release_all();
  // give_up() releases all unused memory of the swapped pools of `device`. hold() returns true if these pools
  // still hold memory.
  void give_up(CUdevice device);
  bool hold(CUdevice device);

 private:
  struct Pool {
    CUmemoryPool handle = nullptr;  // null: the program has destroyed the pool
    bool leaving = false;  // true while the program is destroying the pool; meanwhile, only allocations from
                           // the pool query the driver about the pool
    CUdevice device = 0;
    Kind kind = Kind::swapped;
    Bytes most{~0ull};
    StreamPool blocks;
    // Only pinned pools use these three members:
    Kept kept;
    Bytes wanted;  // bytes of unfinished allocations
    Bytes coming;  // bytes requested from the arbiter for unfinished allocations; the driver may or may not
                   // have allocated them yet
  };
  using PoolPtr = std::shared_ptr<Pool>;
  // An unfinished allocation from a pinned pool.
  struct Claim {
    PoolPtr pool;  // null: the pool is not known, or the size is too large; nothing is counted
    Bytes size;
    Bytes room;
    bool fits = true;  // false if the allocation would exceed the maximum size of the pool
  };
  // A block of a pinned pool. A block's number is never reused, unlike its address.
  struct Block {
    Bytes size;
    PoolPtr pool;  // null if this is no block of a pinned pool
    std::uint64_t number = 0;
  };

  std::vector<PoolPtr> all() const;
  // Called with mutex_ held.
  PoolPtr known(CUmemoryPool pool) const;
  PoolPtr owner(CUdeviceptr address) const;
  std::vector<StreamPool::Chunk> drop_unused(Pool& pool, Bytes keep);
  static Bytes threshold(const Pool& pool);
  static Bytes threshold_now(const Pool& pool);
  static void is_over(const Claim& claim);

  PoolPtr leave_alone(CUmemoryPool handle);
  void decided(const PoolPtr& pool, bool destroyed);
  bool take(CUdeviceptr* address, Bytes size, Pool& pool, StreamId stream);
  CUresult grow(CUdeviceptr* address, Bytes size, Bytes chunk, const PoolPtr& pool, CUcontext context);
  CUresult give(CUdeviceptr address, StreamId stream, const FencePtr& fence);
  void give_back(CUdevice device, const std::vector<StreamPool::Chunk>& chunks);
  // `keep` returns the number of bytes that a pool keeps.
  template <class Keep>
  bool give_back_of(const PoolPtr& pool, Keep keep);
  template <class Keep>
  bool give_back_unused(Keep keep);
  bool trim_pinned();
  bool all_passed();
  void wait_for_frees();

  CUresult prepare(CUmemoryPool pool, Claim& claim);
  CUresult prepare_again(CUmemoryPool pool, Claim& claim);
  bool pinned_frees_pending();
  void allocated_pinned(CUdeviceptr address, const Claim& claim);
  Block pinned_block(CUdeviceptr address);
  void freed_pinned(CUdeviceptr address, const Block& block);
  void recount(const PoolPtr& pool, bool may_grow);

  std::mutex giving_back_;  // held while memory that has left its pool is freed; taken before mutex_
  mutable std::mutex mutex_;
  std::map<CUmemoryPool, PoolPtr> pools_;
  std::vector<PoolPtr> all_;  // including pools that the program destroyed before their memory was free
  struct Chunk {
    Bytes size;
    PoolPtr pool;
  };
  std::map<CUdeviceptr, Chunk> chunks_;  // the chunks of swapped pools
  std::map<CUdeviceptr, Block> pinned_;  // blocks of pinned pools
  std::uint64_t last_number_ = 0;        // the number of the newest block of a pinned pool
  bool pinned_freed_ = false;            // true if a pinned block was freed since the GPU was last seen idle
};

Pools& pools();

}  // namespace sharedgpu::hooks
