// SPDX-License-Identifier: Apache-2.0
// The program's memory pools: plain device pools, whose memory comes from the swap or managed backend, and
// the driver's own (pools to be shared with other processes, all with the native backend), counted as pinned
// by what they keep.
//
// Safe from all threads.
#pragma once

#include <cuda.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "interposer/hooks/kept.h"
#include "interposer/hooks/native.h"
#include "interposer/hooks/streams.h"
#include "interposer/memory/memory.h"

namespace sharedgpu::hooks {

// A block of stream-ordered memory that is ours.
struct Pooled {
  AddressRange range;
  CUmemoryPool pool = nullptr;
  CUdevice device = 0;
};

class Pools {
 public:
  enum class Kind {
    swapped,  // ours
    pinned,   // the driver's, on a device that is shared out
    other,    // no business of ours: the host's, another process's, a plain device's
  };

  // The program has made a pool.
  void created(CUmemoryPool pool, const CUmemPoolProps& properties);
  // Destroys a pool, as `call` does for the driver, which refuses it for a default pool. What is in use of it
  // lives on.
  template <class Call>
  CUresult destroy(CUmemoryPool handle, Call call) {
    const PoolPtr pool = leave_alone(handle);
    const CUresult result = call();
    if (pool != nullptr) decided(pool, result == CUDA_SUCCESS);
    tend();
    return result;
  }
  // `device` is the one whose default pool it might be.
  Kind kind(CUmemoryPool pool, CUdevice device);
  // That of a swapped pool; nullopt: it is none.
  std::optional<CUdevice> device_of_swapped(CUmemoryPool pool);
  // From now on what is allocated there is the driver's.
  void leave_to_driver(CUmemoryPool pool);

  // A block of a swapped pool that `place` may use from its next work on.
  CUresult allocate(CUdeviceptr* address, Bytes size, CUmemoryPool pool, const StreamPlace& place);
  // Whether the address lies in memory that pools hold, in use or not: it is nobody else's then.
  bool holds(CUdeviceptr address);
  std::optional<Pooled> find(CUdeviceptr address);
  // Frees a block in the order of `place`; the same for a block that no work uses any more.
  CUresult free(CUdeviceptr address, const StreamPlace& place);
  CUresult free_unused(CUdeviceptr address);

  // What the driver keeps for a pinned pool. `call` allocates there.
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
  // `call` has the driver free what may be memory of such a pool.
  template <class Call>
  CUresult free_pinned(CUdeviceptr address, Call call) {
    const Block block = pinned_block(address);
    const CUresult result = call();
    if (block.pool != nullptr && result == CUDA_SUCCESS) freed_pinned(address, block);
    return result;
  }

  // Attributes, for swapped pools. The others are kept by the driver.
  struct Statistics {
    Bytes reserved, reserved_high, used, used_high;
  };
  std::optional<Statistics> statistics(CUmemoryPool pool);
  void reset_reserved_high(CUmemoryPool pool);
  void reset_used_high(CUmemoryPool pool);

  // Gives back what the GPU has no use for any more, as long as the pool keeps more than `keep` bytes.
  void trim(CUmemoryPool pool, Bytes keep);
  // The same for all pools and their thresholds, as the driver does when the program synchronizes. Asks the
  // arbiter for nothing.
  void tend();
  // The same whatever the thresholds: memory is short. False: there was nothing to give back.
  bool release_all();
  // Gives back all that swapped pools of `device` do not use; whether they hold any that is theirs still.
  void give_up(CUdevice device);
  bool hold(CUdevice device);

 private:
  struct Pool {
    CUmemoryPool handle = nullptr;  // null: destroyed
    bool leaving = false;           // perhaps being destroyed: the driver is not asked about it
    CUdevice device = 0;
    Kind kind = Kind::swapped;
    Bytes most{~0ull};
    StreamPool blocks;
    // Of a pinned pool.
    Kept kept;
    Bytes wanted;  // by allocations that are under way
    Bytes coming;  // what was claimed for them: the driver may keep it already, or not yet
  };
  using PoolPtr = std::shared_ptr<Pool>;
  // An allocation from a pinned pool that is under way.
  struct Claim {
    PoolPtr pool;  // null: nothing was claimed
    Bytes size;
    Bytes room;
    bool fits = true;  // into the size that the pool may have
  };
  // One of its blocks. Its number is never used twice, as addresses are.
  struct Block {
    Bytes size;
    PoolPtr pool;  // null: it is none
    std::uint64_t number = 0;
  };

  std::vector<PoolPtr> all() const;
  // With the lock.
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
  bool give_back_of(const PoolPtr& pool, Bytes (*keep)(const Pool&));
  bool give_back_unused(Bytes (*keep)(const Pool&));
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

  std::mutex giving_back_;  // held until what has left its pool is free; taken before mutex_
  mutable std::mutex mutex_;
  std::map<CUmemoryPool, PoolPtr> pools_;
  std::vector<PoolPtr> all_;  // also those that the program destroyed before their memory was free
  struct Chunk {
    Bytes size;
    PoolPtr pool;
  };
  std::map<CUdeviceptr, Chunk> chunks_;  // of swapped pools
  std::map<CUdeviceptr, Block> pinned_;  // blocks of pinned pools
  std::uint64_t last_number_ = 0;        // of them
  bool pinned_freed_ = false;            // one of them, since the GPU was last known to be idle
};

Pools& pools();

}  // namespace sharedgpu::hooks
