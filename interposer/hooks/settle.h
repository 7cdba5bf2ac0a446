// SPDX-License-Identifier: Apache-2.0
// Pins memory in place when the program shares it with other processes or devices.
#pragma once

#include <functional>

#include "interposer/hooks/pools.h"
#include "interposer/process/process.h"

namespace sharedgpu::hooks {

// An allocation that the interposer has made, by cuMemAlloc or from a pool.
struct Allocation : Place {
  std::optional<Pooled> pooled;
};
// The allocation that contains `address`; nullopt if there is none.
std::optional<Allocation> allocation_at(CUdeviceptr address);

// Pins a part of an allocation in place, during a turn of this process. Returns CUDA_SUCCESS or a driver
// error code.
CUresult settle(const Place& place, CUdeviceptr address, Bytes size);
// Calls `attempt`, which pins the memory in place, until the result is not CUDA_ERROR_NOT_READY, and returns
// this result. Before each call, waits for a turn of this process. Between two calls, moves memory that is
// away to the GPU, and makes the memory one handle if Memory::to_merge() requires that. Returns
// CUDA_ERROR_OUT_OF_MEMORY if the memory cannot be moved or made one handle.
CUresult settle_with(Memory& memory, CUdeviceptr address, Bytes size,
                     const std::function<CUresult()>& attempt);
// Pins the whole allocation.
inline CUresult settle(const Place& place) { return settle(place, place.range.base, place.range.size); }
// Pins the parts of this range that the program has mapped itself, and ignores all other parts.
CUresult settle_mappings(CUdeviceptr address, Bytes size);

}  // namespace sharedgpu::hooks
