// SPDX-License-Identifier: Apache-2.0
// Moves one handle between the GPU and the host, each way in two steps with asynchronous work between them.
// Whatever fails, the handle ends in one of the states of handle.h and no byte is lost.
//
// The caller owns the handle (busy); it holds no lock. The four functions that move contents are for the one
// thread that has entered the device; a lane carries one handle at a time.
#pragma once

#include <optional>
#include <span>

#include "interposer/memory/device.h"
#include "interposer/memory/handle.h"
#include "interposer/memory/memory.h"

namespace sharedgpu {

// A handle that is to leave, and what was seen of its contents.
struct Leaver {
  Handle* handle = nullptr;
  std::optional<Fingerprint> seen;
};

class Mover {
 public:
  virtual ~Mover() = default;

  // Puts physical memory under a handle that has none. On failure it has none, or none that is accessible.
  virtual CUresult back(Handle& handle) = 0;
  // Takes the physical memory away, and the contents with it if they are not on the host.
  virtual CUresult unback(Handle& handle) = 0;
  // Gives back what the host holds of it: its evicted contents, or its clean copy, are wanted no more.
  virtual void forget(Handle& handle) = 0;
  // For handles with views. Maps the memory of an accessible handle at all of them; on failure some may lack
  // it.
  virtual CUresult show(Handle& handle) = 0;
  // Takes the view's mapping away.
  virtual CUresult hide(Handle& handle, View& view) = 0;

  // Waits for what a failure left under way. To be true before the first move of a turn.
  virtual bool settle() = 0;
  // Whether a failure has left a copy under way. Any thread.
  virtual bool unsettled() const = 0;

  // Looks at what is to leave, together at most Device::kMostLooked: what is not seen is copied. False: a
  // look may still be under way, nothing may leave.
  virtual bool look(std::span<Leaver> /*leavers*/) { return true; }
  // Whether the handle can leave without more host memory.
  virtual bool has_room(const Handle& /*handle*/) const { return true; }

  // Whether its contents will be copied to room that it has not got yet.
  virtual bool needs_room(const Leaver& /*leaver*/) const { return false; }

  // Eviction: host room first; then, when the contents have arrived there, the memory goes. Where it has not
  // begun or does not end, the handle stays as it was, without its clean copy perhaps.
  enum class Begun { yes, no_room, failed };
  virtual Begun begin_out(const Leaver& leaver, Lane lane) = 0;
  virtual bool end_out(Handle& handle, Lane lane) = 0;

  // Restore. On failure the contents are still on the host.
  virtual CUresult begin_in(Handle& handle, Lane lane) = 0;
  virtual bool end_in(Handle& handle, Lane lane) = 0;

  // What has been copied to the host and back so far. Any thread.
  virtual Traffic moved() const { return {}; }
  // What has left since this was last asked.
  virtual Eviction take_left() { return {}; }

  // Host memory taken, and the parts of it that hold contents and clean copies. Any thread.
  virtual Bytes host_held() const = 0;
  virtual Bytes host_used() const = 0;
  virtual Bytes host_kept() const { return {}; }
};

}  // namespace sharedgpu
