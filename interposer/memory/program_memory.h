// SPDX-License-Identifier: Apache-2.0
// Physical memory that the program makes, maps and shows itself: cuMemCreate, cuMemMap, cuMemSetAccess and
// what belongs to them. PyTorch's expandable segments and JAX live on it.
//
// The program's handle stands for memory that comes and goes. Its contents are copied through addresses of
// our own, so that it may be evicted whatever the program has mapped; wherever the program has mapped it, it
// is mapped again when it comes back. What is not on the GPU just now is mapped with the next restore: the
// calls here never wait for a turn.
//
// Safe from all threads. The functions return driver error codes; nullopt: not ours, ask the driver.
#pragma once

#include <cuda.h>

#include <optional>

#include "protocol/units.h"

namespace sharedgpu {

class ProgramMemory {
 public:
  using Id = CUmemGenericAllocationHandle;  // an address that no handle of the driver's has

  // Like Memory::allocate, one reference to it. `size` is a multiple of the driver's granularity.
  virtual CUresult create(Id* id, Bytes size, const CUmemAllocationProp& kind) = 0;
  virtual std::optional<CUresult> release(Id id) = 0;
  virtual std::optional<CUmemAllocationProp> properties(Id id) const = 0;

  virtual std::optional<CUresult> map(CUdeviceptr address, Bytes size, Id id) = 0;
  // One more reference to what is mapped there.
  virtual std::optional<Id> retain(CUdeviceptr address) = 0;

  // The next mapping of ours that has a byte in [address, address + size): where it begins and how long it
  // is.
  struct Mapping {
    CUdeviceptr address = 0;
    Bytes size;
  };
  virtual std::optional<Mapping> next(CUdeviceptr address, Bytes size) const = 0;
  // Of one whole mapping.
  virtual CUresult unmap(CUdeviceptr address) = 0;
  virtual CUresult set_access(CUdeviceptr address, const CUmemAccessDesc* access, std::size_t count) = 0;

  // Keeps it on the GPU for good, counted as pinned, and gives the driver's own handle, a reference of the
  // caller's: for what is exported. CUDA_ERROR_NOT_READY: it is not on the GPU now.
  virtual std::optional<CUresult> settle(Id id, CUmemGenericAllocationHandle* real) = 0;

 protected:
  ~ProgramMemory() = default;
};

}  // namespace sharedgpu
