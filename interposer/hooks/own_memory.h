// SPDX-License-Identifier: Apache-2.0
// Reference counts of the program's own physical memory (cuMemCreate). Memory created by one call of
// cuMemCreate stays on the device as long as a handle or a mapping refers to it.
//
// Knows only handles and addresses. Not thread-safe.
#pragma once

#include <cuda.h>

#include <map>
#include <memory>

#include "protocol/units.h"

namespace sharedgpu::hooks {

class OwnMemory {
 public:
  using Handle = CUmemGenericAllocationHandle;

  void created(Handle handle, Bytes size);
  // released() removes one reference, and unmapped() removes the references of all mappings in the range.
  // Both return the size of the memory that has lost its last reference.
  Bytes released(Handle handle);
  Bytes unmapped(CUdeviceptr address, Bytes size);
  void mapped(CUdeviceptr address, Bytes size, Handle handle);
  // Adds a reference: the driver has returned the handle of the memory that is mapped at this address.
  void retained(Handle handle, CUdeviceptr address);

 private:
  struct Piece {
    Bytes size;
    unsigned users = 0;  // references to handles, and mappings
  };
  using PiecePtr = std::shared_ptr<Piece>;
  struct Reference {
    PiecePtr piece;
    unsigned count = 0;
  };
  struct Mapping {
    Bytes size;
    PiecePtr piece;
  };
  static Bytes drop(Piece& piece) { return --piece.users == 0 ? piece.size : Bytes{}; }

  std::map<Handle, Reference> handles_;
  std::map<CUdeviceptr, Mapping> mappings_;
};

}  // namespace sharedgpu::hooks
