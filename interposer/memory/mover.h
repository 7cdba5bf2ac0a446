// SPDX-License-Identifier: Apache-2.0
// Moves one handle between the GPU and the host, each way a transaction in two steps with an asynchronous
// copy between them. Whatever fails, the handle ends in one of the four states of handle.h and no byte is
// lost.
//
// The caller owns the handle (busy); it holds no lock. The four functions that copy are for the one thread
// that has entered the device; a lane carries one handle at a time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>

#include "interposer/memory/device.h"
#include "interposer/memory/handle.h"
#include "interposer/memory/host_pool.h"

namespace sharedgpu {

class Mover {
 public:
  Mover(Device& device, HostPool& pool) : device_(device), pool_(pool) {}

  // Puts physical memory under a handle that has none. On failure it has none, or none that is accessible.
  CUresult back(Handle& handle);
  // Maps the memory of an accessible handle at all of its views. On failure some may lack it.
  CUresult show(Handle& handle);
  // Takes the view's mapping away.
  CUresult hide(Handle& handle, View& view);
  // Takes the physical memory away, and the contents with it if they are not on the host.
  CUresult unback(Handle& handle);

  // Waits for what a failure left under way. To be true before the first copy of a turn.
  bool settle();
  // Whether a failure has left a copy under way. Any thread.
  bool unsettled() const {
    return std::any_of(unsettled_.begin(), unsettled_.end(), [](const auto& lane) { return lane.load(); });
  }

  // Eviction: host room, then the copy; then, when the copy has finished, the unmapping. False: the handle
  // stays as it was.
  bool begin_out(Handle& handle, Lane lane);
  bool end_out(Handle& handle, Lane lane);

  // Restore: physical memory, then the copy; then, when the copy has finished, the host room is given back.
  // On failure the host copy stays, and the mapping is undone if it can be.
  CUresult begin_in(Handle& handle, Lane lane);
  bool end_in(Handle& handle, Lane lane);

 private:
  CUresult map(Handle& handle);
  void give_back(Physical physical);
  bool settle(Lane lane);

  Device& device_;
  HostPool& pool_;
  std::array<HostRoom, Lane::kCount> filling_;               // what the copies out are writing
  std::array<std::atomic<bool>, Lane::kCount> unsettled_{};  // a copy may be under way for one that failed
};

}  // namespace sharedgpu
