// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/destroy.h"

#include <utility>
#include <vector>

#include "interposer/hooks/holdings.h"
#include "interposer/hooks/queues.h"
#include "interposer/hooks/streams.h"
#include "interposer/session/session.h"

namespace sharedgpu::hooks {

CUresult destroy(Destruction& destruction) {
  const CUcontext context = destruction.context();
  CUdevice device = 0;
  if (context == nullptr || !session::contexts().device(context, &device)) return destruction.carry_out();
  Memory* memory = session::memory_of(device);
  if (memory != nullptr) finish_streams_of(context);
  session::Contexts::Removed removed = session::context_going(context, device);
  const Pinned::All pinned_there = pinned().take(context);
  const Allocations::All allocated = allocations().of(context);
  std::vector<CUdeviceptr> blocks;
  for (const auto& [address, origin] : allocated) blocks.push_back(address);
  const CUresult result =
      memory != nullptr ? memory->free_with(destruction, blocks) : destruction.carry_out();
  if (result != CUDA_SUCCESS) {
    for (const auto& [name, held] : pinned_there) pinned().add(name.first, name.second, held);
    session::context_stays(std::move(removed), device);
    return result;
  }
  for (const auto& [address, origin] : allocated) allocations().remove(address, origin.id);
  for (const auto& [name, held] : pinned_there) held.memory->unpin(held.size);
  session::context_gone(context);
  session::borrowing().close_all(context);
  forget_queues_of(context);
  forget_streams_of(context);
  return result;
}

}  // namespace sharedgpu::hooks
