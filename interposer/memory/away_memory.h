// SPDX-License-Identifier: Apache-2.0
// The memory of an oversized process: a process whose allocations are larger than the device memory that the
// arbiter can grant it. The granted device memory is the window. Handles beyond the window are away: host
// memory is mapped at their addresses, so every access is correct, but slow.
#pragma once

#include <cuda.h>

#include <vector>

#include "protocol/units.h"

namespace sharedgpu {

// A handle that may enter or leave the window. `address` identifies it.
struct AwayHandle {
  CUdeviceptr address = 0;
  Bytes size;
  bool away = false;
};

// Thread-safe, unless a comment says otherwise.
class AwayMemory {
 public:
  virtual ~AwayMemory() = default;

  // Returns the handles that a kernel with the argument `address` may use: all handles from `address` to the
  // end of the allocation. An allocation of more than 512 MiB often holds many arrays of the program, so
  // there the handles end at the next address that was passed to a kernel. Memory that the program has mapped
  // itself is treated in the same way, and the handles then cover at most 512 MiB. The result is a guess: the
  // kernel may use fewer or more handles. The result is empty if the interposer cannot move the memory at
  // `address`.
  virtual std::vector<AwayHandle> operands(CUdeviceptr address) = 0;
  // Returns the movable handles that hold the `size` bytes at `address`. These bytes must lie in one
  // allocation, or in one mapping that the program has made itself; otherwise the result is empty.
  virtual std::vector<AwayHandle> within(CUdeviceptr address, Bytes size) const = 0;
  // Returns all handles that can be moved.
  virtual std::vector<AwayHandle> handles() const = 0;
  // The size of the handles in the window.
  virtual Bytes window() const = 0;
  // How many bytes can enter the window without another handle leaving it.
  virtual Bytes room() const = 0;
  // How many bytes could be allocated now, in one allocation or several, if the arbiter granted `device` more
  // bytes of device memory, and memory beyond the window without limit. The free host memory may have been
  // read up to 100 ms before `now`.
  virtual Bytes growth(Bytes device, Nanoseconds now) const = 0;
  // How many bytes must leave the window, because pinned memory takes their place on the GPU.
  virtual Bytes excess() const = 0;
  // Moves the handles `out` of the window and the handles `in` into it, as far as memory permits. Skips
  // handles that have been freed or moved meanwhile. No work of the process may be running. For the turn
  // thread only. Returns true if each handle of `in` is in the window, or has been freed.
  virtual bool exchange(const std::vector<CUdeviceptr>& out, const std::vector<CUdeviceptr>& in) = 0;
};

}  // namespace sharedgpu
