// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/context_teardown.h"

#include <mutex>
#include <vector>

#include "interposer/driver/call.h"
#include "interposer/hooks/allocate.h"
#include "interposer/hooks/holdings.h"
#include "interposer/hooks/pools.h"
#include "interposer/hooks/primary.h"
#include "interposer/hooks/queues.h"
#include "interposer/hooks/streams.h"

namespace sharedgpu::hooks {

using session::Primary;

namespace {

// How often a wait for the last work is overtaken by threads that take a reference and give it back.
constexpr int kTries = 100;

// Whether the memory of the device's pools goes with its primary context, in which they take it.
bool pools_go_with_primary(const Process& process, CUdevice device) {
  const Allocator* memory = process.devices().memory(device);
  return memory != nullptr && memory->goes_with_contexts() && memory->serves_pools();
}

// Whether pools hold memory there, or soon will: stream-ordered memory outlives every context, even where the
// device is reset (measured). With the lock.
bool needed(const Process& process, const Primary& primary, CUdevice device) {
  return pools_go_with_primary(process, device) && (primary.growing > 0 || pools().hold(device));
}

// The lock, where `last` says that the context is about to go taken when its work is over: to wait for that
// with the lock would keep off others, for whom that work may be waiting.
template <class Last>
std::unique_lock<std::mutex> lock_finished(Process& process, Primary& primary, CUdevice device, Last last) {
  std::unique_lock lock(primary.mutex);
  for (int tries = 0; tries < kTries && last(); ++tries) {
    const std::uint64_t seen = primary.changes;
    lock.unlock();
    const CUcontext context = process.contexts().primary(device);
    if (context != nullptr && process.devices().memory(device) != nullptr) finish_streams_of(context);
    lock.lock();
    if (primary.changes == seen) break;
  }
  return lock;
}

// What the program had in a context that lives on without it, as far as it is in others' way.
void clear_out(Process& process, CUcontext context) {
  if (context == nullptr) return;
  process.contexts().destroy_streams(context);
  process.captures().drop(context);
  process.borrowing().close_all(context);
  forget_queues_of(context);
  forget_streams_of(context);
  for (const auto& [address, origin] : allocations().of(context)) free_finished(address);
}

// Whether the context has to live on without the program's references: what pools do not use may go with it.
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
  if (memory != nullptr) finish_streams_of(context);
  session::Contexts::Removed removed = process.context_going(context, device);
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
  process.captures().drop(context);
  process.borrowing().close_all(context);
  forget_queues_of(context);
  forget_streams_of(context);
  return result;
}

CUresult release_primary(Process& process, CUdevice device, const Call& real) {
  Primary& primary = process.contexts().references(device);
  const auto lock = lock_finished(process, primary, device, [&] { return primary.references == 1; });
  if (primary.kept && primary.references == 0) return CUDA_ERROR_INVALID_CONTEXT;  // as where there is none
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
    if (result == CUDA_SUCCESS && primary.kept) process.context_added(context, device, true);  // it stays
  }
  if (result != CUDA_SUCCESS || primary.references == 0) return result;
  --primary.references;
  ++primary.changes;
  return result;
}

CUresult reset_primary(Process& process, CUdevice device, const Call& real) {
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

// Where another thread has the lock it may be about to take a reference. Nor may this wait for the GPU, as
// the end of a context does.
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
