// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/swap_memory.h"

#include <utility>

#include "interposer/memory/swap_mover.h"

namespace sharedgpu {

SwapMemory::Moving SwapMemory::moving_to_host(Device& device, HostBudget& budget, HostSystem& system) {
  auto pool = std::make_unique<HostPool>(device, budget, system, device.granularity());
  auto blocks = std::make_unique<AwayBlocks>(device, budget);
  auto mover = std::make_unique<SwapMover>(device, *pool, *blocks);
  return {.pool = std::move(pool), .blocks = std::move(blocks), .mover = std::move(mover)};
}

SwapMemory::SwapMemory(Device& device, HostBudget& budget, HostSystem& system, Books& books,
                       const SwapOptions& options)
    : SwapMemory(device, budget, books, options, moving_to_host(device, budget, system)) {}

SwapMemory::SwapMemory(Device& device, HostBudget& budget, Books& books, const SwapOptions& options,
                       Moving moving)
    : common_{.device = device,
              .budget = budget,
              .books = books,
              .options = options,
              .pool = std::move(moving.pool),
              .blocks = std::move(moving.blocks),
              .mover = std::move(moving.mover)} {}

SwapMemory::~SwapMemory() {
  const MutexLock lock(common_.mutex);
  for (auto& [base, range] : common_.space.ranges()) {
    for (Handle& handle : range.handles) {
      if (handle.mapped) common_.mover->unback(handle);
    }
    common_.device.unreserve(base, range.size);
  }
}

std::optional<AddressRange> SwapMemory::find(CUdeviceptr address) const {
  const MutexLock lock(common_.mutex);
  return common_.space.find(address);
}

std::vector<Handle> SwapMemory::handles() const {
  const MutexLock lock(common_.mutex);
  std::vector<Handle> all;
  for (const auto& [base, range] : common_.space.ranges())
    all.insert(all.end(), range.handles.begin(), range.handles.end());
  return all;
}

}  // namespace sharedgpu
