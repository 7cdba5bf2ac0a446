// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/context_teardown.h"

#include <mutex>
#include <vector>

#include "interposer/backlog/queues.h"
#include "interposer/backlog/streams.h"
#include "interposer/driver/call.h"
#include "interposer/hooks/allocate.h"
#include "interposer/hooks/holdings.h"
#include "interposer/hooks/pools.h"
#include "interposer/hooks/primary.h"

namespace sharedgpu::hooks {

using tracking::Primary;

namespace {

// The most waits of one call of lock_finished(). The function waits again for the context's work if other
// threads take or release references during a wait.
constexpr int kTries = 100;

// Returns true if the memory of the device's pools is freed with the device's primary context. Pools allocate
// in the primary context.
bool pools_go_with_primary(const Process& process, CUdevice device) {
  const Allocator* memory = process.devices().memory(device);
  return memory != nullptr && memory->goes_with_contexts() && memory->serves_pools();
}

// Returns true if pools hold memory that would be freed with the device's primary context, or are about to
// allocate such memory. Without the interposer, stream-ordered memory outlives every context, even a reset of
// the device (measured). Called with primary.mutex held.
bool needed(const Process& process, const Primary& primary, CUdevice device) {
  return pools_go_with_primary(process, device) && (primary.growing > 0 || pools().hold(device));
}

// Returns the lock. If `last` returns true, the context is about to be destroyed, and the lock is taken only
// after the context's work has finished. Waiting with the lock held would block other threads, for which the
// context's work may be waiting.
template <class Last>
std::unique_lock<std::mutex> lock_finished(Process& process, Primary& primary, CUdevice device, Last last) {
  std::unique_lock lock(primary.mutex);
  for (int tries = 0; tries < kTries && last(); ++tries) {
    const std::uint64_t seen = primary.changes;
    lock.unlock();
    const CUcontext context = process.contexts().primary(device);
    if (context != nullptr && process.devices().memory(device) != nullptr)
      backlog::finish_streams_of(context);
    lock.lock();
    if (primary.changes == seen) break;
  }
  return lock;
}

// Forgets the captures and streams that the program had in a context, and closes the memory that it had
// imported there.
void forget(Process& process, CUcontext context) {
  process.captures().drop(context);
  process.imports().close_all(context);
  backlog::forget_queues_of(context);
  backlog::forget_streams_of(context);
}

// Destroys the streams and frees the memory that the program has in `context`. The context itself remains,
// since pools need it.
void clear_out(Process& process, CUcontext context) {
  if (context == nullptr) return;
  process.contexts().destroy_streams(context);
  forget(process, context);
  for (const auto& [address, origin] : allocations().of(context)) free_finished(address);
}

// Returns true if the context has to remain even without a reference of the program. If the memory of the
// device's pools is freed with this context, first releases the unused memory of the pools.
bool holds_up(const Process& process, const Primary& primary, CUdevice device) {
  if (pools_go_with_primary(process, device)) pools().give_up(device);
  return needed(process, primary, device);
}

}  // namespace

CUresult destroy(Process& process, Destruction& destruction) {
  const CUcontext context = destruction.context();
  CUdevice device = 0;
  if (context == nullptr || !process.contexts().device(context, &device)) return destruction.carry_out();
  Allocator* memory = process.devices().memory(device);
  if (memory != nullptr) backlog::finish_streams_of(context);
  tracking::Contexts::Removed removed = process.context_going(context, device);
  const Pinned::All pinned_there = pinned().take(context);
  const Allocations::All allocated = allocations().of(context);
  std::vector<CUdeviceptr> blocks;
  for (const auto& [address, origin] : allocated) blocks.push_back(address);
  const CUresult result =
      memory != nullptr ? memory->free_with(destruction, blocks) : destruction.carry_out();
  if (result != CUDA_SUCCESS) {
    for (const auto& [name, held] : pinned_there) pinned().add(name.first, name.second, held);
    process.context_stays(std::move(removed), device);
    return result;
  }
  for (const auto& [address, origin] : allocated) allocations().remove(address, origin.id);
  for (const auto& [name, held] : pinned_there) held.memory->unpin(held.size);
  forget(process, context);
  return result;
}

CUresult release_primary(CUdevice device, const Call& real) {
  Process* const mine = Process::get();
  if (mine == nullptr) return real();
  Process& process = *mine;
  Primary& primary = process.contexts().references(device);
  const auto lock = lock_finished(process, primary, device, [&] { return primary.references == 1; });
  if (primary.kept && primary.references == 0)
    return CUDA_ERROR_INVALID_CONTEXT;  // as if the primary context did not exist
  const CUcontext context = process.contexts().primary(device);
  CUresult result = CUDA_SUCCESS;
  if (primary.references != 1) {
    result = real();
  } else if (holds_up(process, primary, device)) {
    result = keep(primary, device);
    if (result == CUDA_SUCCESS) result = real();
    if (result == CUDA_SUCCESS) clear_out(process, context);
  } else {
    DestructionBy destruction(context, [&] {
      const CUresult released = real();
      if (released == CUDA_SUCCESS) let_go(primary, device);
      return released;
    });
    result = destroy(process, destruction);
    if (result == CUDA_SUCCESS && primary.kept)
      process.context_added(context, device, true);  // the context still exists
  }
  if (result != CUDA_SUCCESS || primary.references == 0) return result;
  --primary.references;
  ++primary.changes;
  return result;
}

CUresult reset_primary(CUdevice device, const Call& real) {
  Process* const mine = Process::get();
  if (mine == nullptr) return real();
  Process& process = *mine;
  Primary& primary = process.contexts().references(device);
  const auto lock = lock_finished(process, primary, device, [] { return true; });
  const CUcontext context = process.contexts().primary(device);
  CUresult result = CUDA_SUCCESS;
  if (holds_up(process, primary, device)) {
    clear_out(process, context);
  } else {
    DestructionBy destruction(context, real);
    result = destroy(process, destruction);
  }
  if (result == CUDA_SUCCESS) primary.reset = true;
  ++primary.changes;
  return result;
}

// Does nothing if another thread holds the lock, since that thread may be about to take a reference. Does
// nothing if the GPU is busy, since the destruction would wait for the GPU.
void tend_primary(Process& process, CUdevice device) {
  Primary& primary = process.contexts().references(device);
  const std::unique_lock lock(primary.mutex, std::try_to_lock);
  if (!lock.owns_lock() || !primary.kept || primary.references != 0 || needed(process, primary, device))
    return;
  if (!process.contexts().done()) return;
  const CUcontext context = process.contexts().primary(device);
  DestructionBy destruction(context, [&] {
    let_go(primary, device);
    return primary.kept ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
  });
  destroy(process, destruction);
}

}  // namespace sharedgpu::hooks
