// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/pools.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "interposer/driver/call.h"
#include "interposer/gate/captures.h"
#include "interposer/gate/clock.h"
#include "interposer/hooks/holdings.h"
#include "interposer/hooks/primary.h"
#include "interposer/process/process.h"
#include "interposer/tracking/current.h"

namespace sharedgpu::hooks {
namespace {

constexpr Bytes kChunkUnit = mebibytes(2);

// The maximum size of a pool with these properties. The member maxSize exists only in cuda.h of CUDA 12.2 or
// later.
template <class Properties>
Bytes most_of(const Properties& properties) {
  if constexpr (requires { properties.maxSize; })
    if (properties.maxSize != 0) return {properties.maxSize};
  return {~0ull};
}

Bytes attribute_of(CUmemoryPool pool, CUmemPool_attribute attribute) {
  cuuint64_t value = 0;
  SHAREDGPU_REAL(cuMemPoolGetAttribute, pool, attribute, &value);
  return {value};
}

// Waits for the GPU are bounded, since a kernel may be waiting for this thread's next action.
constexpr int kMostNaps = 2000;
void nap() { gate::nap(std::chrono::milliseconds(1)); }

bool is_done() {
  Process* mine = Process::get();
  return mine == nullptr || mine->contexts().done();
}

// With this argument, give_back_of() and give_back_unused() release all unused memory of a pool.
constexpr auto nothing = [](const auto& /*pool*/) { return Bytes{}; };

}  // namespace

// --- Owners of pools ---

void Pools::created(CUmemoryPool pool, const CUmemPoolProps& properties) {
  auto made = std::make_shared<Pool>();
  made->handle = pool;
  made->device = properties.location.id;
  made->most = most_of(properties);
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties.allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    made->kind = Kind::other;
  else if (properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE)
    made->kind = Kind::pinned;
  const std::lock_guard lock(mutex_);
  pools_[pool] = made;
  all_.push_back(std::move(made));
}

// Called before the pool is destroyed. From now on only an allocation from the pool queries the driver about
// the pool. The entry in pools_ stays, since the driver may refuse the destruction, and other threads may use
// the pool until the driver destroys it.
Pools::PoolPtr Pools::leave_alone(CUmemoryPool handle) {
  const std::lock_guard lock(mutex_);
  PoolPtr pool = known(handle);
  if (pool != nullptr) pool->leaving = true;
  return pool;
}

// Called with the result of the destruction. The driver may already have reused the handle for a new pool of
// another thread.
void Pools::decided(const PoolPtr& pool, bool destroyed) {
  {
    const std::lock_guard lock(mutex_);
    pool->leaving = false;
    if (destroyed) {
      if (known(pool->handle) == pool) pools_.erase(pool->handle);
      pool->handle = nullptr;
    }
  }
  recount(pool, true);
}

Pools::PoolPtr Pools::known(CUmemoryPool pool) const {
  const auto found = pools_.find(pool);
  return found == pools_.end() ? nullptr : found->second;
}

Pools::Kind Pools::kind(CUmemoryPool handle, CUdevice device) {
  const std::lock_guard lock(mutex_);
  PoolPtr pool = known(handle);
  if (pool == nullptr) {
    CUmemoryPool standard = nullptr;
    if (SHAREDGPU_REAL(cuDeviceGetDefaultMemPool, &standard, device) != CUDA_SUCCESS || standard != handle)
      return Kind::other;
    pool = std::make_shared<Pool>();
    pool->handle = handle;
    pool->device = device;
    pools_[handle] = pool;
    all_.push_back(pool);
  }
  const Allocator* memory = process::memory_of(pool->device);
  if (memory == nullptr) return Kind::other;
  if (pool->kind == Kind::swapped && !memory->serves_pools()) pool->kind = Kind::pinned;
  return pool->kind;
}

std::optional<CUdevice> Pools::device_of_swapped(CUmemoryPool handle) {
  for (const CUdevice device : process::devices()) {
    if (kind(handle, device) != Kind::swapped) continue;
    const std::lock_guard lock(mutex_);
    if (const PoolPtr pool = known(handle)) return pool->device;
  }
  return std::nullopt;
}

void Pools::leave_to_driver(CUmemoryPool handle) {
  const std::lock_guard lock(mutex_);
  if (PoolPtr pool = known(handle); pool != nullptr && pool->kind == Kind::swapped) pool->kind = Kind::pinned;
}

// --- Blocks ---

// First tries blocks that are known to be free. Then checks whether the GPU has finished with more freed
// blocks, and tries these.
bool Pools::take(CUdeviceptr* address, Bytes size, Pool& pool, StreamId stream) {
  const std::lock_guard lock(mutex_);
  auto place = pool.blocks.take(size, stream);
  if (!place) {
    pool.blocks.settle();
    place = pool.blocks.take(size, stream);
  }
  if (place) *address = *place;
  return place.has_value();
}

CUresult Pools::allocate(CUdeviceptr* address, Bytes size, CUmemoryPool handle,
                         const backlog::StreamPlace& place) {
  if (size > kLargestAllocation) return CUDA_ERROR_OUT_OF_MEMORY;
  PoolPtr pool;
  Bytes roomy;
  {
    const std::lock_guard lock(mutex_);
    pool = known(handle);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;  // destroyed just now by another thread
    roomy = pool->blocks.next_chunk(size, kChunkUnit);
  }
  const Bytes exact = StreamPool().next_chunk(size, kChunkUnit);
  CUresult result = CUDA_SUCCESS;
  if (!take(address, size, *pool, place.id)) result = grow(address, size, roomy, pool, place.context);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    // Like the driver, waits until the GPU has finished with freed blocks, and makes all pools release the
    // memory that they do not use.
    wait_for_frees();
    if (take(address, size, *pool, place.id)) {
      result = CUDA_SUCCESS;
    } else {
      release_all();
      result = grow(address, size, exact, pool, place.context);
    }
  }
  if (result == CUDA_SUCCESS) allocations().add(*address, nullptr);
  return result;
}

CUresult Pools::grow(CUdeviceptr* address, Bytes size, Bytes chunk, const PoolPtr& pool, CUcontext context) {
  {
    const std::lock_guard lock(mutex_);
    if (size > pool->most || pool->blocks.reserved() > minus(pool->most, chunk))
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Process* const mine = Process::get();
  Allocator* const memory = mine != nullptr ? mine->devices().memory(pool->device) : nullptr;
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;  // this is the child of a fork
  // The chunk outlives the program's contexts, since pools belong to the device.
  std::optional<PrimaryStays> primary;
  if (memory->goes_with_contexts()) {
    primary.emplace(*mine, pool->device);
    if (primary->result() != CUDA_SUCCESS) return primary->result();
    context = primary->context();
  }
  {
    const tracking::Current in(context);
    if (CUresult result = memory->allocate(address, chunk); result != CUDA_SUCCESS) return result;
  }
  const std::lock_guard lock(mutex_);
  chunks_[*address] = {chunk, pool};
  pool->blocks.add_chunk(*address, chunk, size);
  return CUDA_SUCCESS;
}

bool Pools::all_passed() {
  const std::lock_guard lock(mutex_);
  bool all = true;
  for (const PoolPtr& pool : all_) all &= pool->blocks.settle();
  return all;
}

void Pools::wait_for_frees() {
  for (int tries = 0; !all_passed() && tries < kMostNaps; ++tries) nap();
}

Pools::PoolPtr Pools::owner(CUdeviceptr address) const {
  const auto after = chunks_.upper_bound(address);
  if (after == chunks_.begin()) return nullptr;
  const auto& [base, chunk] = *std::prev(after);
  return address - base < chunk.size.count ? chunk.pool : nullptr;
}

bool Pools::holds(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  return owner(address) != nullptr;
}

std::optional<Pooled> Pools::find(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const PoolPtr pool = owner(address);
  if (pool == nullptr) return std::nullopt;
  const auto block = pool->blocks.find(address);
  if (!block) return std::nullopt;
  return Pooled{{block->base, block->size}, pool->handle, pool->device};
}

CUresult Pools::free(CUdeviceptr address, const backlog::StreamPlace& place) {
  const auto pooled = find(address);
  if (!pooled || pooled->range.base != address) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  if (const FencePtr fence = backlog::mark(place, &result)) return give(address, place.id, fence);
  // If no fence can be recorded, this call waits for the stream instead, since cuMemFreeAsync without
  // sharedgpu needs no fence and would succeed. If an earlier kernel has failed, the wait returns the
  // kernel's error, as cuMemFreeAsync would.
  result = SHAREDGPU_REAL(cuStreamSynchronize, place.stream);
  return result == CUDA_SUCCESS ? free_unused(address) : result;
}

CUresult Pools::free_unused(CUdeviceptr address) { return give(address, {}, nullptr); }

CUresult Pools::give(CUdeviceptr address, StreamId stream, const FencePtr& fence) {
  const std::lock_guard lock(mutex_);
  const PoolPtr pool = owner(address);
  const auto origin = allocations().origin(address);
  if (pool == nullptr || !pool->blocks.give(address, stream, fence)) return CUDA_ERROR_INVALID_VALUE;
  if (origin) allocations().remove(address, origin->id);
  return CUDA_SUCCESS;
}

// --- Releasing ---

std::vector<StreamPool::Chunk> Pools::drop_unused(Pool& pool, Bytes keep) {
  std::vector<StreamPool::Chunk> unused = pool.blocks.release(keep);
  for (const StreamPool::Chunk& chunk : unused) chunks_.erase(chunk.base);
  return unused;
}

void Pools::give_back(CUdevice device, const std::vector<StreamPool::Chunk>& chunks) {
  Allocator* memory = process::memory_of(device);
  if (memory == nullptr) return;
  for (const StreamPool::Chunk& chunk : chunks) memory->free_unused(chunk.base);
}

// Called with giving_back_ held. Returns true if anything was released.
template <class Keep>
bool Pools::give_back_of(const PoolPtr& pool, Keep keep) {
  std::vector<StreamPool::Chunk> unused;
  {
    const std::lock_guard lock(mutex_);
    pool->blocks.settle();
    unused = drop_unused(*pool, keep(*pool));
  }
  give_back(pool->device, unused);
  recount(pool, false);
  return !unused.empty();
}

void Pools::trim(CUmemoryPool handle, Bytes keep) {
  const std::lock_guard one_at_a_time(giving_back_);
  PoolPtr pool;
  {
    const std::lock_guard lock(mutex_);
    pool = known(handle);
  }
  if (pool != nullptr) give_back_of(pool, [=](const Pool& /*pool*/) { return keep; });
}

template <class Keep>
bool Pools::give_back_unused(Keep keep) {
  bool any = false;
  const std::lock_guard one_at_a_time(giving_back_);
  for (const PoolPtr& pool : all()) any |= give_back_of(pool, keep);
  const std::lock_guard lock(mutex_);
  std::erase_if(all_, [](const PoolPtr& pool) {
    return pool->handle == nullptr && pool->blocks.reserved() == Bytes{} && pool->kept.counted == Bytes{};
  });
  return any;
}

void Pools::give_up(CUdevice device) {
  const std::lock_guard one_at_a_time(giving_back_);
  for (const PoolPtr& pool : all())
    if (pool->device == device) give_back_of(pool, nothing);
}

bool Pools::hold(CUdevice device) {
  const std::lock_guard nobody_gives_back(giving_back_);
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(chunks_, [=](const auto& chunk) { return chunk.second.pool->device == device; });
}

std::vector<Pools::PoolPtr> Pools::all() const {
  const std::lock_guard lock(mutex_);
  return all_;
}

Bytes Pools::threshold(const Pool& pool) {
  if (pool.leaving) return {~0ull};
  if (pool.handle == nullptr) return {};
  return attribute_of(pool.handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
}

// Returns how many bytes the pool may keep now. Some memory can be released only when the GPU is idle. While
// the GPU works, the pool keeps this memory for reuse.
Bytes Pools::threshold_now(const Pool& pool) {
  const Allocator* memory = process::memory_of(pool.device);
  const bool goes_now = memory == nullptr || !memory->frees_late() || is_done();
  return goes_now ? threshold(pool) : Bytes{~0ull};
}

void Pools::tend() {
  if (!gate::capturing()) give_back_unused(threshold_now);  // during a capture nothing may be unmapped
}

// Trims the pinned pools. The driver itself trims them when the GPU has no memory left. But if the arbiter
// refuses memory while the GPU still has free memory, the driver does not know that memory is short. So the
// interposer trims the pools then. The lock is held so that no pool is destroyed while this function uses it.
bool Pools::trim_pinned() {
  if (gate::capturing()) return false;
  bool any = false;
  const std::lock_guard lock(mutex_);
  for (const PoolPtr& pool : all_) {
    if (pool->kind != Kind::pinned || pool->handle == nullptr || pool->leaving) continue;
    const Bytes before = attribute_of(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    SHAREDGPU_REAL(cuMemPoolTrimTo, pool->handle, 0);
    any |= attribute_of(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) < before;
  }
  return any;
}

bool Pools::release_all() {
  const bool any = trim_pinned();
  return give_back_unused(nothing) || any;
}

// --- Attributes ---

std::optional<Pools::Statistics> Pools::statistics(CUmemoryPool handle) {
  const std::lock_guard lock(mutex_);
  const PoolPtr pool = known(handle);
  if (pool == nullptr) return std::nullopt;
  const StreamPool& blocks = pool->blocks;
  return Statistics{blocks.reserved(), blocks.reserved_high(), blocks.used(), blocks.used_high()};
}

void Pools::reset_reserved_high(CUmemoryPool handle) {
  const std::lock_guard lock(mutex_);
  if (const PoolPtr pool = known(handle)) pool->blocks.reset_reserved_high();
}

void Pools::reset_used_high(CUmemoryPool handle) {
  const std::lock_guard lock(mutex_);
  if (const PoolPtr pool = known(handle)) pool->blocks.reset_used_high();
}

// --- Pinned pools ---

// Requests from the arbiter as much memory as the driver will have to allocate on the device for this
// allocation. An allocation larger than any device is left to the driver.
CUresult Pools::prepare(CUmemoryPool handle, Claim& claim) {
  if (claim.size > kLargestAllocation) return CUDA_SUCCESS;
  {
    const std::lock_guard lock(mutex_);
    claim.pool = known(handle);
    if (claim.pool == nullptr) return CUDA_SUCCESS;
    Pool& pool = *claim.pool;
    const Bytes kept = attribute_of(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    const Bytes used = attribute_of(handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    // Requests at most the size of the allocation, since `used` may already include unfinished allocations of
    // other threads.
    claim.room = std::min(claim.size, minus(used + pool.wanted + claim.size, kept + pool.coming));
    claim.fits = kept <= minus(pool.most, claim.room);
    pool.wanted += claim.size;
    pool.coming += claim.room;
  }
  if (claim.room == Bytes{}) return CUDA_SUCCESS;
  const CUresult result = process::memory_of(claim.pool->device)->pin(claim.room);
  const std::lock_guard lock(mutex_);
  if (result == CUDA_SUCCESS)
    claim.pool->kept.counted += claim.room;
  else
    is_over(claim);
  return result;
}

// Called after a refusal. Like allocate(), waits until the GPU has finished with freed blocks, and makes all
// pools release the memory that they do not use.
CUresult Pools::prepare_again(CUmemoryPool handle, Claim& claim) {
  for (int naps = 0;; ++naps) {
    const bool last = naps == kMostNaps || gate::capturing() || !pinned_frees_pending();
    if (release_all())
      if (CUresult result = prepare(handle, claim); result != CUDA_ERROR_OUT_OF_MEMORY) return result;
    if (last) return CUDA_ERROR_OUT_OF_MEMORY;
    nap();
  }
}

bool Pools::pinned_frees_pending() {
  const std::lock_guard lock(mutex_);
  pinned_freed_ = pinned_freed_ && !is_done();
  return pinned_freed_;
}

void Pools::is_over(const Claim& claim) {
  claim.pool->wanted -= claim.size;
  claim.pool->coming -= claim.room;
}

void Pools::allocated_pinned(CUdeviceptr address, const Claim& claim) {
  if (claim.pool == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    is_over(claim);
    if (address != 0) pinned_[address] = {claim.size, claim.pool, ++last_number_};
  }
  recount(claim.pool, true);
}

Pools::Block Pools::pinned_block(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const auto found = pinned_.find(address);
  return found == pinned_.end() ? Block{} : found->second;
}

// Removes only `block`, since its address may already belong to a new block.
void Pools::freed_pinned(CUdeviceptr address, const Block& block) {
  {
    const std::lock_guard lock(mutex_);
    pinned_freed_ = true;
    const auto found = pinned_.find(address);
    if (found != pinned_.end() && found->second.number == block.number) pinned_.erase(found);
  }
  recount(block.pool, false);
}

// Adjusts the counted memory of a pinned pool to the memory that the driver keeps for the pool. The driver
// reports nothing about a pool that the program has destroyed. For such a pool, only the blocks in use are
// counted, since only their sizes are known.
void Pools::recount(const PoolPtr& pool, bool may_grow) {
  Pinning* memory = process::memory_of(pool->device);
  if (memory == nullptr) return;
  hooks::recount(mutex_, pool->kept, *memory, may_grow, [&] {
    if (pool->kind != Kind::pinned) return KeptNow{};
    if (pool->leaving) return KeptNow{{}, pool->kept.counted};
    Bytes least;
    if (pool->handle != nullptr) {
      least = attribute_of(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    } else {
      for (const auto& [address, block] : pinned_)
        if (block.pool == pool) least += block.size;
    }
    return KeptNow{least, least + pool->coming};
  });
}

// The object is never destroyed, since programs free memory until they end.
Pools& pools() {
  static auto* made = new Pools;
  return *made;
}

}  // namespace sharedgpu::hooks
