// SPDX-License-Identifier: Apache-2.0
// Physical memory that the program itself creates, maps and makes accessible: cuMemCreate, cuMemMap,
// cuMemSetAccess and related functions. PyTorch's expandable segments and JAX use these functions.
//
// The CUDA handle (CUmemGenericAllocationHandle) that the program gets stands for swappable memory. The
// interposer maps this memory at addresses of its own, and uses these addresses for its copies. So it can
// evict the memory whether or not the program has mapped it. A restore maps the memory at all of the
// program's addresses again. These functions never wait for a turn: if memory is not on the GPU now, the next
// restore maps it.
//
// Thread-safe. The functions return driver error codes. Functions with an optional result return nullopt if
// the memory is not the interposer's; the caller must then call the driver.
#pragma once

#include <cuda.h>

#include <optional>

#include "protocol/units.h"

namespace sharedgpu {

class ProgramMemory {
 public:
  using Id = CUmemGenericAllocationHandle;  // a device address, which never equals a handle of the driver

  // Allocates memory like Memory::allocate(); the caller gets one reference to the memory. `size` is a
  // multiple of the driver's granularity.
  virtual CUresult create(Id* id, Bytes size, const CUmemAllocationProp& kind) = 0;
  virtual std::optional<CUresult> release(Id id) = 0;
  virtual std::optional<CUmemAllocationProp> properties(Id id) const = 0;

  virtual std::optional<CUresult> map(CUdeviceptr address, Bytes size, Id id) = 0;
  // Adds a reference to the memory that is mapped at `address`.
  virtual std::optional<Id> retain(CUdeviceptr address) = 0;

  // The first of the program's mappings that overlaps [address, address + size).
  struct Mapping {
    CUdeviceptr address = 0;
    Bytes size;
  };
  virtual std::optional<Mapping> next(CUdeviceptr address, Bytes size) const = 0;
  // `address` must be the first address of a mapping, which is unmapped as a whole.
  virtual CUresult unmap(CUdeviceptr address) = 0;
  virtual CUresult set_access(CUdeviceptr address, const CUmemAccessDesc* access, std::size_t count) = 0;

  // Pins the memory in place for an export, and returns the driver's own handle with a reference that the
  // caller owns. Returns CUDA_ERROR_NOT_READY if the memory is not on the GPU now.
  virtual std::optional<CUresult> settle(Id id, CUmemGenericAllocationHandle* real) = 0;

 protected:
  ~ProgramMemory() = default;
};

}  // namespace sharedgpu
