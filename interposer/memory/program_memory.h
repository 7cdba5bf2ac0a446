// SPDX-License-Identifier: Apache-2.0
// Physical memory that the program itself creates, maps and makes accessible: cuMemCreate, cuMemMap,
// cuMemSetAccess and related functions. PyTorch's expandable segments and JAX use it.
//
// The program's handle stands for memory that is evicted and restored. Its contents are copied through
// addresses of our own, so that it can be evicted whatever the program has mapped; a restore maps it again at
// all of the program's mappings. Memory that is not on the GPU now is mapped by the next restore: the calls
// here never wait for a turn.
//
// Thread-safe. The functions return driver error codes, or nullopt if the memory is not ours and the driver
// has to be called.
#pragma once

#include <cuda.h>

#include <optional>

#include "protocol/units.h"

namespace sharedgpu {

class ProgramMemory {
 public:
  using Id = CUmemGenericAllocationHandle;  // the handle is an address, which no handle of the driver equals

  // Like Memory::allocate, with one reference to the memory. `size` is a multiple of the driver's
  // granularity.
  virtual CUresult create(Id* id, Bytes size, const CUmemAllocationProp& kind) = 0;
  virtual std::optional<CUresult> release(Id id) = 0;
  virtual std::optional<CUmemAllocationProp> properties(Id id) const = 0;

  virtual std::optional<CUresult> map(CUdeviceptr address, Bytes size, Id id) = 0;
  // Takes one more reference to the memory that is mapped at `address`.
  virtual std::optional<Id> retain(CUdeviceptr address) = 0;

  // The first of these mappings that has a byte in [address, address + size).
  struct Mapping {
    CUdeviceptr address = 0;
    Bytes size;
  };
  virtual std::optional<Mapping> next(CUdeviceptr address, Bytes size) const = 0;
  // `address` is the first address of one whole mapping.
  virtual CUresult unmap(CUdeviceptr address) = 0;
  virtual CUresult set_access(CUdeviceptr address, const CUmemAccessDesc* access, std::size_t count) = 0;

  // Pins the memory in place for an export, and returns the driver's own handle with a reference that the
  // caller owns. Returns CUDA_ERROR_NOT_READY if the memory is not on the GPU now.
  virtual std::optional<CUresult> settle(Id id, CUmemGenericAllocationHandle* real) = 0;

 protected:
  ~ProgramMemory() = default;
};

}  // namespace sharedgpu
