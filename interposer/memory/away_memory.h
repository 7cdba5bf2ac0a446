// SPDX-License-Identifier: Apache-2.0
// The memory of an oversized process: a process whose allocations are larger than the device memory that the
// arbiter can grant it. The granted device memory is the window. Handles beyond the window are away: host
// memory is mapped at their addresses, or their managed pages stay on the host. So every access is correct,
// but slow.
#pragma once

#include <cuda.h>

#include <functional>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu {

// A handle that may enter or leave the window. `address` identifies it.
struct AwayHandle {
  CUdeviceptr address = 0;
  Bytes size;
  bool away = false;
  bool moving = false;  // takes part in an exchange that is being made, or that schedule() has announced
};

// Thread-safe, unless a comment says otherwise.
class AwayMemory {
 public:
  virtual ~AwayMemory() = default;

  // Returns the handles that a kernel may use which gets `address` as an argument: all handles from there to
  // the end of the allocation. In large allocations, which often hold many arrays of the program, the handles
  // end at the next address that was passed to a kernel. The result is a guess: the kernel may use fewer or
  // more handles. Empty if no memory of the interposer that can be moved contains `address`.
  virtual std::vector<AwayHandle> operands(CUdeviceptr address) = 0;
  // Returns the handles under this part of an allocation, or of a mapping that the program has made itself,
  // that can be moved. Empty if the part does not lie within one.
  virtual std::vector<AwayHandle> within(CUdeviceptr address, Bytes size) const = 0;
  // Returns all handles that can be moved, and are not moving.
  virtual std::vector<AwayHandle> handles() const = 0;
  // The size of the handles in the window.
  virtual Bytes window() const = 0;
  // How many bytes can enter the window without another handle leaving it.
  virtual Bytes room() const = 0;
  // How many bytes could be allocated now if the arbiter granted no more device memory: the unused part of
  // the window, and host memory. The host memory is as known a moment before `now`.
  virtual Bytes growth(Nanoseconds now) const = 0;
  // How many bytes must leave the window, because pinned memory takes their place on the GPU.
  virtual Bytes excess() const = 0;
  // Returns true if the process's work may run during exchange().
  virtual bool moves_beside_work() const { return false; }
  // Moves the handles `out` of the window and the handles `in` into it, as far as memory permits. Skips
  // handles that have been freed or moved meanwhile. No work of the process may be running, unless
  // moves_beside_work(). For the turn thread only. Returns true if all handles of `in` are in the window.
  // `stop` is called before handles begin to move: once it returns true, no further handle does.
  virtual bool exchange(const std::vector<CUdeviceptr>& out, const std::vector<CUdeviceptr>& in,
                        const std::function<bool()>& stop) = 0;
  bool exchange(const std::vector<CUdeviceptr>& out, const std::vector<CUdeviceptr>& in) {
    return exchange(out, in, [] { return false; });
  }
  // Announces an exchange that the turn thread will make soon; its end, or cancel(), ends the announcement.
  virtual void schedule(const std::vector<CUdeviceptr>& /*handles*/) {}
  virtual void cancel(const std::vector<CUdeviceptr>& /*handles*/) {}
  // Waits until none of these handles is moving, at most for `patience`.
  virtual void wait_for(const std::vector<CUdeviceptr>& /*handles*/, Nanoseconds /*patience*/) {}
};

}  // namespace sharedgpu
